/*
 * fake_cubin.c - see fake_cubin.h. Header, body, then section names and the table: null, names, .text.<kernel>.
 */
#include "fakenvrtc/fake_cubin.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

enum { HEADER = 64, NAMES = 128, NAMES_SECTION = 1, BODY_SECTION = 2, SECTIONS = 3, CUDA_ABI = 0x41, CUDA_ABI_VERSION = 8 };

static size_t names_at(const struct fake_cubin *cubin)
{
    return (HEADER + cubin->size + 7) / 8 * 8;
}

size_t fake_cubin_size(const struct fake_cubin *cubin)
{
    return *cubin->kernel ? names_at(cubin) + NAMES + SECTIONS * sizeof(Elf64_Shdr) : HEADER + cubin->size;
}

static void put_sections(const struct fake_cubin *cubin, Elf64_Ehdr *header, char *out)
{
    const size_t at = names_at(cubin);
    static const char first[] = "\0.shstrtab";
    char names[NAMES] = "";
    memcpy(names, first, sizeof first);
    snprintf(names + sizeof first, sizeof names - sizeof first, ".text.%s", cubin->kernel);
    Elf64_Shdr sections[SECTIONS];
    memset(sections, 0, sizeof sections);
    sections[NAMES_SECTION].sh_name = 1;
    sections[NAMES_SECTION].sh_type = SHT_STRTAB;
    sections[NAMES_SECTION].sh_offset = at;
    sections[NAMES_SECTION].sh_size = NAMES;
    sections[BODY_SECTION].sh_name = sizeof first;
    sections[BODY_SECTION].sh_type = SHT_PROGBITS;
    sections[BODY_SECTION].sh_offset = HEADER;
    sections[BODY_SECTION].sh_size = cubin->size;
    header->e_shoff = at + NAMES;
    header->e_shentsize = sizeof(Elf64_Shdr);
    header->e_shnum = SECTIONS;
    header->e_shstrndx = NAMES_SECTION;
    memcpy(out + at, names, sizeof names);
    memcpy(out + at + NAMES, sections, sizeof sections);
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

const void *fake_cubin_body(const void *cubin, size_t *size)
{
    Elf64_Ehdr header;
    Elf64_Shdr section;
    memcpy(&header, cubin, sizeof header);
    memcpy(&section, (const char *)cubin + header.e_shoff + BODY_SECTION * sizeof section, sizeof section);
    *size = section.sh_size;
    return (const char *)cubin + section.sh_offset;
}
