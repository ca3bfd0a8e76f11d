/*
 * fake_cubin.c - see fake_cubin.h. Header, body, then names, symbols, a relocation, and the table of sections.
 */
#include "fakenvrtc/fake_cubin.h"

#include <elf.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "runtime/code_address.h"

enum { HEADER = 64, NAMES = 128, CUDA_ABI = 0x41, CUDA_ABI_VERSION = 8, R_CUDA_64 = 2 };
enum { NO_SYMBOL, VARIABLE, KERNEL, NUM_SYMBOLS };
enum { NO_SECTION, NAMES_SECTION, BODY_SECTION, SYMBOLS_SECTION, RELOCATION_SECTION, SECTIONS };

/* Behind the body, at a multiple of 8; names of symbols are those of sections, behind ".text.". */
struct tail {
    char names[NAMES];
    Elf64_Sym symbols[NUM_SYMBOLS];
    Elf64_Rela relocation;
    Elf64_Shdr sections[SECTIONS];
};

static size_t tail_at(const struct fake_cubin *cubin)
{
    return (HEADER + cubin->size + 7) / 8 * 8;
}

size_t fake_cubin_size(const struct fake_cubin *cubin)
{
    return *cubin->kernel ? tail_at(cubin) + sizeof(struct tail) : HEADER + cubin->size;
}

static void put_section(struct tail *tail, int i, size_t name, unsigned type, size_t offset, size_t size)
{
    tail->sections[i].sh_name = (unsigned)name;
    tail->sections[i].sh_type = type;
    tail->sections[i].sh_offset = offset;
    tail->sections[i].sh_size = size;
}

static void put_sections(const struct fake_cubin *cubin, Elf64_Ehdr *header, char *out)
{
    static const char first[] = "\0.shstrtab\0" GDNI_OWN_CODE, text[] = ".text.";
    const size_t at = tail_at(cubin), body_name = sizeof first, kernel_name = body_name + sizeof text - 1;
    struct tail tail;
    memset(&tail, 0, sizeof tail);
    memcpy(tail.names, first, sizeof first);
    snprintf(tail.names + body_name, sizeof tail.names - body_name, "%s%s", text, cubin->kernel);
    tail.symbols[VARIABLE].st_name = sizeof "\0.shstrtab";
    tail.symbols[VARIABLE].st_info = ELF64_ST_INFO(STB_LOCAL, STT_OBJECT);
    tail.symbols[KERNEL].st_name = (unsigned)kernel_name;
    tail.symbols[KERNEL].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    tail.symbols[KERNEL].st_size = cubin->size;
    tail.relocation.r_info = ELF64_R_INFO((Elf64_Xword)VARIABLE, (Elf64_Xword)R_CUDA_64);
    put_section(&tail, NAMES_SECTION, 1, SHT_STRTAB, at + offsetof(struct tail, names), NAMES);
    put_section(&tail, BODY_SECTION, body_name, SHT_PROGBITS, HEADER, cubin->size);
    put_section(&tail, SYMBOLS_SECTION, 0, SHT_SYMTAB, at + offsetof(struct tail, symbols), sizeof tail.symbols);
    tail.sections[SYMBOLS_SECTION].sh_link = NAMES_SECTION;
    if (cubin->asks_address)
        put_section(&tail, RELOCATION_SECTION, 0, SHT_RELA, at + offsetof(struct tail, relocation), sizeof tail.relocation);
    tail.sections[RELOCATION_SECTION].sh_link = SYMBOLS_SECTION;
    header->e_shoff = at + offsetof(struct tail, sections);
    header->e_shentsize = sizeof(Elf64_Shdr);
    header->e_shnum = SECTIONS;
    header->e_shstrndx = NAMES_SECTION;
    memcpy(out + at, &tail, sizeof tail);
}

void fake_cubin_write(const struct fake_cubin *cubin, void *out)
{
    static const unsigned char ident[] = { ELFMAG0,     ELFMAG1,    ELFMAG2,  ELFMAG3,         ELFCLASS64,
                                           ELFDATA2LSB, EV_CURRENT, CUDA_ABI, CUDA_ABI_VERSION };
    Elf64_Ehdr header;
    memset(&header, 0, sizeof header);
    memcpy(header.e_ident, ident, sizeof ident);
    header.e_machine = EM_CUDA;
    header.e_flags = cubin->capability << 8 | (cubin->tag & 0xff);
    header.e_ehsize = HEADER;
    memset(out, 0, fake_cubin_size(cubin));
    if (*cubin->kernel) put_sections(cubin, &header, out);
    memcpy(out, &header, sizeof header);
    memcpy((char *)out + HEADER, cubin->body, cubin->size);
}

static void read_section(const char *cubin, int i, Elf64_Shdr *out)
{
    Elf64_Ehdr header;
    memcpy(&header, cubin, sizeof header);
    memcpy(out, cubin + header.e_shoff + (size_t)i * sizeof *out, sizeof *out);
}

const void *fake_cubin_body(const void *cubin, size_t *size)
{
    Elf64_Shdr section;
    read_section(cubin, BODY_SECTION, &section);
    *size = section.sh_size;
    return (const char *)cubin + section.sh_offset;
}

const char *fake_cubin_address_of(const void *cubin)
{
    Elf64_Shdr names, symbols, relocations;
    Elf64_Rela relocation;
    Elf64_Sym symbol;
    read_section(cubin, NAMES_SECTION, &names);
    read_section(cubin, SYMBOLS_SECTION, &symbols);
    read_section(cubin, RELOCATION_SECTION, &relocations);
    if (relocations.sh_type != SHT_RELA) return NULL;
    memcpy(&relocation, (const char *)cubin + relocations.sh_offset, sizeof relocation);
    memcpy(&symbol, (const char *)cubin + symbols.sh_offset + ELF64_R_SYM(relocation.r_info) * sizeof symbol, sizeof symbol);
    return (const char *)cubin + names.sh_offset + symbol.st_name;
}
