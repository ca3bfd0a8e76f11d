/*
 * replay_main.c - runs a fuzz target over the files of the folders it is given, without libFuzzer: what the corpus once
 * found stays found in every build. Must not know: any target.
 *
 *   fuzz_<name> FOLDER...      0: all ran; 1: a folder or file could not be read, or there was no file at all
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In a block of exactly their size, so that AddressSanitizer sees a read past the end; NULL when unreadable. */
static uint8_t *read_whole(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    uint8_t *bytes = NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        const long end = ftell(file);
        rewind(file);
        if (end >= 0) bytes = malloc(end ? (size_t)end : 1);
        *size = bytes ? (size_t)end : 0;
        if (bytes && fread(bytes, 1, *size, file) != *size) {
            free(bytes);
            bytes = NULL;
        }
    }
    fclose(file);
    return bytes;
}

static int run_file(const char *path)
{
    size_t size = 0;
    uint8_t *bytes = read_whole(path, &size);
    if (!bytes) {
        perror(path);
        return -1;
    }
    printf("%s: %zu bytes\n", path, size);
    fflush(stdout); /* the last line names the culprit of a crash */
    LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    return 0;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Number of files that ran; -1 after a file or folder that could not be read. */
static int run_folder(const char *folder)
{
    struct dirent **entries;
    const int count = scandir(folder, &entries, is_visible, alphasort);
    if (count < 0) {
        perror(folder);
        return -1;
    }
    int ran = 0;
    for (int i = 0; i < count; ++i) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (ran >= 0) ran = run_file(path) == 0 ? ran + 1 : -1;
        free(entries[i]);
    }
    free(entries);
    return ran;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; ++i) {
        const int ran = run_folder(argv[i]);
        if (ran < 0) return 1;
        total += ran;
    }
    printf("%d inputs replayed\n", total);
    return total > 0 ? 0 : 1;
}
