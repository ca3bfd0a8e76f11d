/*
 * translate.cc - see translate.h.
 */
#include "translate.h"

#include <cctype>
#include <stdexcept>
#include <vector>

namespace {

bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

struct Reader {
    const std::string &text;
    size_t at = 0;

    bool ended() const
    {
        return at >= text.size();
    }
    bool sees(const std::string &what) const
    {
        return text.compare(at, what.size(), what) == 0;
    }
    bool sees_word(const std::string &word) const
    {
        return sees(word) && (at == 0 || !is_word(text[at - 1])) && !is_word(text[at + word.size()]);
    }
    std::string until(const std::string &end)
    {
        const size_t found = text.find(end, at);
        if (found == std::string::npos) throw std::runtime_error("the source ends where " + end + " is to come");
        const size_t from = at;
        at = found + end.size();
        return text.substr(from, at - from);
    }
    std::string literal() /* with its quotes */
    {
        const size_t from = at++;
        while (text.at(at) != text[from])
            at += text[at] == '\\' ? 2 : 1;
        ++at;
        return text.substr(from, at - from);
    }
    void skip_space()
    {
        while (!ended() && isspace((unsigned char)text[at]))
            ++at;
    }
    bool comment_or_literal(std::string &out)
    {
        if (sees("//"))
            out += until("\n");
        else if (sees("/*"))
            out += until("*/");
        else if (text[at] == '"' || (text[at] == '\'' && !(at && isdigit((unsigned char)text[at - 1]))))
            out += literal();
        else
            return false;
        return true;
    }
};

/* What stands between the parentheses of an asm statement, by its colons: text, outputs, inputs, clobbers. */
std::vector<std::string> sections_of(Reader &r)
{
    std::vector<std::string> sections(1);
    for (int depth = 1; depth > 0;) {
        if (r.comment_or_literal(sections.back())) continue;
        const char c = r.text.at(r.at++);
        depth += c == '(' || c == '[' || c == '{';
        depth -= c == ')' || c == ']' || c == '}';
        if (c == ':' && depth == 1)
            sections.emplace_back();
        else if (depth > 0)
            sections.back() += c;
    }
    return sections;
}

/* "=r"(x), "=r"(y) -> (x), (y) */
std::string operands_of(const std::string &section)
{
    std::string out;
    Reader r{ section };
    int depth = 0;
    while (!r.ended()) {
        if (depth == 0 && section[r.at] == '"') {
            r.literal();
            continue;
        }
        depth += section[r.at] == '(';
        depth -= section[r.at] == ')';
        out += section[r.at++];
    }
    return out.find_first_not_of(" \n\t") == std::string::npos ? "" : out;
}

std::string inline_ptx(Reader &r)
{
    r.at += 3;
    r.skip_space();
    if (r.sees_word("volatile")) r.at += 8;
    r.skip_space();
    if (r.text.at(r.at++) != '(') throw std::runtime_error("asm without a parenthesis");
    const std::vector<std::string> sections = sections_of(r);
    const std::string out = sections.size() > 1 ? operands_of(sections[1]) : "",
                      in = sections.size() > 2 ? operands_of(sections[2]) : "";
    return "ptx::run<" + sections[0] + ">(" + out + (out.empty() || in.empty() ? "" : ", ") + in + ")";
}

/* [extern] __shared__ [__align__(n)] type name[...]; */
std::string shared_memory(Reader &r, bool dynamic)
{
    std::string declaration = r.until(";");
    const size_t bracket = declaration.rfind('['), space = declaration.rfind(' ', bracket);
    size_t type = declaration.rfind(' ', space - 1);
    if (bracket == std::string::npos || type == std::string::npos)
        throw std::runtime_error("shared memory that is no array: " + declaration);
    const std::string name = declaration.substr(space + 1, bracket - space - 1),
                      of = declaration.substr(type + 1, space - type - 1);
    return "static simt::SharedArray<" + of + ", " + (dynamic ? "false" : "true") + "> " + name + ";";
}

} // namespace

std::string host_gpu_translate(const std::string &source)
{
    std::string out;
    Reader r{ source };
    while (!r.ended()) {
        if (r.comment_or_literal(out)) continue;
        if (r.sees_word("asm"))
            out += inline_ptx(r);
        else if (r.sees("extern __shared__"))
            out += shared_memory(r, true);
        else if (r.sees_word("__shared__"))
            out += shared_memory(r, false);
        else
            out += source[r.at++];
    }
    return out;
}
