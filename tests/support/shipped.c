/* shipped.c - see shipped.h. */
#include "support/shipped.h"

#include <string.h>

bool shipped_says_stale(const char *sentence)
{
    return strstr(sentence, "\"space\" is ") && strstr(sentence, "its winners have not met this version's candidates");
}

bool shipped_is_stale_warning(const char *message)
{
    static const char built_in[] = "tuning: a built-in table is ignored: ";
    return strncmp(message, built_in, sizeof built_in - 1) == 0 && shipped_says_stale(message);
}
