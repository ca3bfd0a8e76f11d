/*
 * nvrtc_peek.c - owns what can be told of libnvrtc without loading it: where the loader would find it, and which build it is.
 * Must not know: the cache, the compiler's interface. No lock, no state.
 *
 * The loader's order for a bare name: rpath, LD_LIBRARY_PATH, ld.so.cache, the system's folders. A wrong answer here costs a
 * second lookup and no more (see gdni_nvrtc_tag), so what is rare is left out: hwcaps folders, the old ld.so.cache format.
 */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "codegen/key.h"
#include "runtime/nvrtc.h"

/* ---- build id ---- */

static size_t up4(size_t n)
{
    return (n + 3) & ~(size_t)3;
}

bool gdni_note_build_id(const void *notes, size_t size, char id[GDNI_BUILD_ID])
{
    const char *p = notes;
    while (size >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, p, sizeof note);
        const size_t name = up4(note.n_namesz), content = up4(note.n_descsz), head = sizeof note;
        if (name > size - head || content > size - head - name) return false;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(p + head, "GNU", 4) == 0 &&
            note.n_descsz >= 8) {
            const unsigned char *bytes = (const unsigned char *)p + head + name;
            for (size_t i = 0; i < note.n_descsz && i < (GDNI_BUILD_ID - 1) / 2; ++i)
                snprintf(id + 2 * i, 3, "%02x", bytes[i]);
            return true;
        }
        p += head + name + content;
        size -= head + name + content;
    }
    return false;
}

enum { MAX_PHDRS = 64, MAX_SHDRS = 1024, MAX_NOTES = 4096 };

static bool read_at(int fd, void *bytes, size_t size, uint64_t offset)
{
    return offset <= INT64_MAX && pread(fd, bytes, size, (off_t)offset) == (ssize_t)size;
}

static bool notes_have_id(int fd, uint64_t offset, uint64_t size, char id[GDNI_BUILD_ID])
{
    char notes[MAX_NOTES];
    return size <= MAX_NOTES && read_at(fd, notes, size, offset) && gdni_note_build_id(notes, size, id);
}

static bool segments_have_id(int fd, const ElfW(Ehdr) *elf, char id[GDNI_BUILD_ID])
{
    ElfW(Phdr) headers[MAX_PHDRS];
    if (elf->e_phentsize != sizeof headers[0] || elf->e_phnum > MAX_PHDRS) return false;
    if (!read_at(fd, headers, elf->e_phnum * sizeof headers[0], elf->e_phoff)) return false;
    for (int i = 0; i < elf->e_phnum; ++i)
        if (headers[i].p_type == PT_NOTE && notes_have_id(fd, headers[i].p_offset, headers[i].p_filesz, id)) return true;
    return false;
}

/* NVIDIA's wheels are edited after they were linked: the note has moved, and PT_NOTE points at what lies in its old place. */
static bool sections_have_id(int fd, const ElfW(Ehdr) *elf, char id[GDNI_BUILD_ID])
{
    ElfW(Shdr) header;
    if (elf->e_shentsize != sizeof header || elf->e_shnum > MAX_SHDRS || elf->e_shoff > INT64_MAX) return false;
    for (uint64_t i = 0; i < elf->e_shnum; ++i) {
        if (!read_at(fd, &header, sizeof header, elf->e_shoff + i * sizeof header)) return false;
        if (header.sh_type == SHT_NOTE && notes_have_id(fd, header.sh_offset, header.sh_size, id)) return true;
    }
    return false;
}

static bool build_id_of(int fd, char id[GDNI_BUILD_ID])
{
    ElfW(Ehdr) elf;
    if (!read_at(fd, &elf, sizeof elf, 0) || memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0) return false;
    return segments_have_id(fd, &elf, id) || sections_have_id(fd, &elf, id);
}

bool gdni_peek_build_id(const char *path, char id[GDNI_BUILD_ID])
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    const bool found = build_id_of(fd, id);
    close(fd);
    return found;
}

_Static_assert((int)GDNI_CONTENT == (int)GDNI_KEY_HEX, "a hash fits");

bool gdni_peek_content(const char *path, char hex[GDNI_CONTENT])
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    void *map = MAP_FAILED;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0); /* as the loader has mapped it */
    close(fd);
    if (map == MAP_FAILED) return false;
    gdni_hash_hex(hex, map, (size_t)st.st_size);
    munmap(map, (size_t)st.st_size);
    return true;
}

/* ---- where ---- */

/* /etc/ld.so.cache as glibc has written it since 2.2, in the host's byte order. */
struct ld_cache_header {
    char magic[20]; /* "glibc-ld.so.cache1.1" */
    uint32_t num_entries, strings_len, reserved[5];
};
struct ld_cache_entry {
    int32_t flags;
    uint32_t name, path; /* offsets from the header */
    uint32_t os_version;
    uint64_t hwcap;
};

/* What ldconfig gives a library of the ABI that this code is compiled for. */
#if defined(__x86_64__)
enum { LD_FLAGS = 0x0303 };
#elif defined(__aarch64__)
enum { LD_FLAGS = 0x0a03 };
#else
enum { LD_FLAGS = 0x0003 };
#endif

/* The text at offset, if it ends inside the file. */
static const char *text_at(const char *cache, size_t size, uint32_t offset)
{
    return offset < size && memchr(cache + offset, '\0', size - offset) ? cache + offset : NULL;
}

const char *gdni_ld_cache_find(const void *cache, size_t size, const char *name)
{
    struct ld_cache_header header;
    if (size < sizeof header) return NULL;
    memcpy(&header, cache, sizeof header);
    if (memcmp(header.magic, "glibc-ld.so.cache1.1", sizeof header.magic) != 0) return NULL;
    if (header.num_entries > (size - sizeof header) / sizeof(struct ld_cache_entry)) return NULL;
    const char *at = (const char *)cache + sizeof header;
    for (uint32_t i = 0; i < header.num_entries; ++i, at += sizeof(struct ld_cache_entry)) {
        struct ld_cache_entry entry;
        memcpy(&entry, at, sizeof entry);
        const char *has = text_at(cache, size, entry.name);
        if (entry.flags == LD_FLAGS && entry.hwcap == 0 && has && strcmp(has, name) == 0)
            return text_at(cache, size, entry.path);
    }
    return NULL;
}

static bool in_ld_cache(const char *name, char path[GDNI_PATH])
{
    struct stat st;
    const int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    void *map = MAP_FAILED;
    if (fstat(fd, &st) == 0 && st.st_size > 0)
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd,
                   0); /* ldconfig replaces it, never writes into it */
    close(fd);
    if (map == MAP_FAILED) return false;
    const char *found = gdni_ld_cache_find(map, (size_t)st.st_size, name);
    const bool fits = found && snprintf(path, GDNI_PATH, "%s", found) < GDNI_PATH;
    munmap(map, (size_t)st.st_size);
    return fits;
}

static bool is_system_folder(const char *folder)
{
    return strncmp(folder, "/lib", 4) == 0 || strncmp(folder, "/usr/lib", 8) == 0;
}

static bool in_folders(const Dl_serinfo *info, bool system, const char *name, char path[GDNI_PATH])
{
    for (unsigned i = 0; i < info->dls_cnt; ++i) {
        const char *folder = info->dls_serpath[i].dls_name;
        if (is_system_folder(folder) == system && snprintf(path, GDNI_PATH, "%s/%s", folder, name) < GDNI_PATH &&
            access(path, R_OK) == 0)
            return true;
    }
    return false;
}

/* The folders that the loader itself says it searches; ours to free. */
static Dl_serinfo *loader_folders(void)
{
    Dl_serinfo size;
    void *self = _r_debug.r_map; /* the program: a library without an rpath, as ours is, searches where it does */
    if (!self || dlinfo(self, RTLD_DI_SERINFOSIZE, &size) != 0) return NULL;
    Dl_serinfo *info = gdni_calloc(1, size.dls_size);
    if (!info) return NULL;
    *info = size;
    if (dlinfo(self, RTLD_DI_SERINFOSIZE, info) == 0 && dlinfo(self, RTLD_DI_SERINFO, info) == 0) return info;
    gdni_free(info);
    return NULL;
}

bool gdni_peek_resolve(const char *name, char path[GDNI_PATH])
{
    if (strchr(name, '/')) return snprintf(path, GDNI_PATH, "%s", name) < GDNI_PATH && access(path, R_OK) == 0;
    Dl_serinfo *info = loader_folders();
    const bool found = (info && in_folders(info, false, name, path)) || in_ld_cache(name, path) ||
                       (info && in_folders(info, true, name, path));
    gdni_free(info);
    return found;
}
