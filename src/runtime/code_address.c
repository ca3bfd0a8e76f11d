/*
 * code_address.c - see code_address.h. Reads an ELF file, which may be damaged. Must not know: drivers, plans, kernels.
 */
#include "runtime/code_address.h"

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "codegen/spec.h"

enum { R_CUDA_64 = 2 }; /* as nvdisasm names it: an address, plus what the relocation adds */

struct image {
    const unsigned char *bytes;
    size_t size;
    Elf64_Ehdr header;
    uint32_t symbols_at; /* number of the symbols' section; there is one in a cubin */
    Elf64_Shdr symbols, names;
    uint64_t variable, kernel, kernel_size; /* numbers of their symbols; 0, which none has: not found */
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

static bool find_symbols(struct image *image)
{
    for (uint32_t i = 0; i < image->header.e_shnum; ++i)
        if (read_section(image, i, &image->symbols) && image->symbols.sh_type == SHT_SYMTAB) {
            image->symbols_at = i;
            return read_section(image, image->symbols.sh_link, &image->names);
        }
    return false;
}

static bool is_named(const struct image *image, const Elf64_Sym *symbol, const char *name)
{
    const size_t length = strlen(name) + 1;
    return symbol->st_name <= image->names.sh_size && length <= image->names.sh_size - symbol->st_name &&
           memcmp(image->bytes + image->names.sh_offset + symbol->st_name, name, length) == 0;
}

static bool find_variable_and_kernel(struct image *image, const char *entry)
{
    Elf64_Sym symbol;
    for (uint64_t i = 1; i < image->symbols.sh_size / sizeof symbol; ++i) {
        if (!read_at(image, image->symbols.sh_offset + i * sizeof symbol, &symbol, sizeof symbol)) return false;
        if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && is_named(image, &symbol, GDNI_OWN_CODE)) image->variable = i;
        if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || !is_named(image, &symbol, entry)) continue;
        image->kernel = i;
        image->kernel_size = symbol.st_size;
    }
    return image->variable && image->kernel;
}

/* Of a section of relocations: those of the variable are the kernel's, in the copy. Returns how many. */
static int tell(const struct image *image, const Elf64_Shdr *section, unsigned char *copy)
{
    const uint64_t lines = image->kernel_size / GDNI_CODE_LINE + (image->kernel_size % GDNI_CODE_LINE != 0);
    Elf64_Rela relocation;
    int told = 0;
    for (uint64_t i = 0; i < section->sh_size / sizeof relocation; ++i) {
        const uint64_t at = section->sh_offset + i * sizeof relocation;
        if (!read_at(image, at, &relocation, sizeof relocation)) break;
        if (relocation.r_info != ELF64_R_INFO(image->variable, (uint64_t)R_CUDA_64)) continue;
        relocation.r_info = ELF64_R_INFO(image->kernel, (uint64_t)R_CUDA_64);
        relocation.r_addend = (int64_t)(lines << GDNI_ADDRESS_BITS);
        memcpy(copy + at, &relocation, sizeof relocation);
        ++told;
    }
    return told;
}

static int tell_everywhere(const struct image *image, unsigned char *copy)
{
    size_t left = image->size; /* sections may lie above each other; then they are not looked at for ever */
    int told = 0;
    for (uint32_t i = 0; i < image->header.e_shnum; ++i) {
        Elf64_Shdr section;
        if (!read_section(image, i, &section) || section.sh_type != SHT_RELA) continue;
        if (section.sh_link != image->symbols_at || section.sh_size > left) continue;
        left -= section.sh_size;
        told += tell(image, &section, copy);
    }
    return told;
}

void *gdni_tell_code_address(const void *cubin, size_t size, const char *entry)
{
    struct image image = { .bytes = cubin, .size = size };
    if (!read_at(&image, 0, &image.header, sizeof image.header)) return NULL;
    if (memcmp(image.header.e_ident, ELFMAG, SELFMAG) != 0 || image.header.e_ident[EI_CLASS] != ELFCLASS64) return NULL;
    if (image.header.e_shentsize != sizeof(Elf64_Shdr)) return NULL;
    if (!find_symbols(&image) || !find_variable_and_kernel(&image, entry)) return NULL;
    unsigned char *copy = gdni_memdup(cubin, size);
    if (copy && tell_everywhere(&image, copy) > 0) return copy;
    gdni_free(copy);
    return NULL;
}
