/*
 * code_address.c - see code_address.h. Reads an ELF file, which may be damaged. Must not know: drivers, plans, kernels.
 */
#include "runtime/code_address.h"

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"

enum { R_CUDA_64 = 2 }; /* as nvdisasm names it: an address, plus what the relocation adds */

struct image {
    const unsigned char *bytes;
    size_t size;
    Elf64_Ehdr header;
};

static bool read_at(const struct image *image, uint64_t offset, void *out, size_t size)
{
    if (offset > image->size || size > image->size - offset) return false;
    memcpy(out, image->bytes + offset, size);
    return true;
}

/* A section that lies in the file. */
static bool read_section(const struct image *image, uint32_t i, Elf64_Shdr *out)
{
    const uint64_t table = image->header.e_shoff;
    if (i >= image->header.e_shnum || table > image->size) return false;
    return read_at(image, table + i * sizeof *out, out, sizeof *out) && out->sh_offset <= image->size &&
           out->sh_size <= image->size - out->sh_offset;
}

/* Symbol i of a table; false also behind its end. */
static bool read_symbol(const struct image *image, const Elf64_Shdr *symbols, uint64_t i, Elf64_Sym *out)
{
    return i < symbols->sh_size / sizeof *out && read_at(image, symbols->sh_offset + i * sizeof *out, out, sizeof *out);
}

static bool is_named(const struct image *image, const Elf64_Shdr *symbols, const Elf64_Sym *symbol, const char *name)
{
    Elf64_Shdr names;
    const size_t length = strlen(name) + 1;
    return read_section(image, symbols->sh_link, &names) && symbol->st_name <= names.sh_size &&
           length <= names.sh_size - symbol->st_name &&
           memcmp(image->bytes + names.sh_offset + symbol->st_name, name, length) == 0;
}

/* The number of the entry's symbol; 0, which no symbol has: there is none. */
static uint64_t find_entry(const struct image *image, const Elf64_Shdr *symbols, const char *entry, Elf64_Sym *out)
{
    for (uint64_t i = 1; read_symbol(image, symbols, i, out); ++i)
        if (ELF64_ST_TYPE(out->st_info) == STT_FUNC && is_named(image, symbols, out, entry)) return i;
    return 0;
}

/* Whether relocation i of a section asks for the variable; then *out is the one that tells, and *at its place in the file. */
static bool make_telling(const struct image *image, const Elf64_Shdr *section, uint64_t i, const char *entry, uint64_t *at,
                         Elf64_Rela *out)
{
    Elf64_Shdr symbols;
    Elf64_Sym symbol;
    *at = section->sh_offset + i * sizeof *out;
    if (!read_section(image, section->sh_link, &symbols) || !read_at(image, *at, out, sizeof *out)) return false;
    if (ELF64_R_TYPE(out->r_info) != R_CUDA_64) return false;
    if (!read_symbol(image, &symbols, ELF64_R_SYM(out->r_info), &symbol)) return false;
    if (!is_named(image, &symbols, &symbol, GDNI_OWN_CODE)) return false;
    const uint64_t kernel = find_entry(image, &symbols, entry, &symbol);
    if (kernel == 0) return false;
    const uint64_t lines = symbol.st_size / GDNI_CODE_LINE + (symbol.st_size % GDNI_CODE_LINE != 0);
    out->r_info = ELF64_R_INFO(kernel, (uint64_t)R_CUDA_64);
    out->r_addend = (int64_t)(lines << GDNI_CODE_ADDRESS_BITS);
    return true;
}

void *gdni_tell_code_address(const void *cubin, size_t size, const char *entry)
{
    struct image image = { .bytes = cubin, .size = size };
    if (!read_at(&image, 0, &image.header, sizeof image.header)) return NULL;
    if (memcmp(image.header.e_ident, ELFMAG, SELFMAG) != 0 || image.header.e_ident[EI_CLASS] != ELFCLASS64) return NULL;
    if (image.header.e_shentsize != sizeof(Elf64_Shdr)) return NULL;
    unsigned char *told = NULL;
    for (uint32_t i = 0; i < image.header.e_shnum; ++i) {
        Elf64_Shdr section;
        Elf64_Rela relocation;
        uint64_t at = 0;
        if (!read_section(&image, i, &section) || section.sh_type != SHT_RELA) continue;
        for (uint64_t k = 0; k < section.sh_size / sizeof relocation; ++k) {
            if (!make_telling(&image, &section, k, entry, &at, &relocation)) continue;
            if (!told && !(told = gdni_memdup(cubin, size))) return NULL;
            memcpy(told + at, &relocation, sizeof relocation);
        }
    }
    return told;
}
