/*
 * nvrtc.cc - libnvrtc of the host GPU: a unit is translated (translate.cc), compiled by the C++ compiler that built this file,
 * and given back as an ELF file whose section .text.<kernel> is a shared object, for driver.c.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include "fakenvrtc/fake_cubin.h"
#include "translate.h"

extern "C" {
#include "runtime/nvrtc.h"
}

struct gdni_nvrtcprog_opaque {
    std::string source, name;
    std::vector<std::pair<std::string, std::string>> headers;
    std::string log;
    std::vector<unsigned char> cubin;
};

/* What kernels are compiled with, which is not this file: so that the library's build id, and with it cache keys, change. */
extern "C" const char host_gpu_version[];
const char host_gpu_version[] = HOST_GPU_VERSION;

namespace {

enum { OK = 0, COMPILATION = 6, INVALID = 3 };

void write_file(const std::filesystem::path &path, const std::string &text)
{
    std::ofstream out(path, std::ios::binary);
    out << text;
    if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
}

std::string read_file(const std::filesystem::path &path)
{
    std::ifstream in(path, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    if (!in) throw std::runtime_error("cannot read " + path.string());
    return text.str();
}

struct Folder {
    std::filesystem::path path;
    Folder()
    {
        std::string name = (std::filesystem::temp_directory_path() / "host_gpu.XXXXXX").string();
        if (!mkdtemp(name.data())) throw std::runtime_error("cannot make a folder like " + name);
        path = name;
    }
    ~Folder()
    {
        std::error_code ignored;
        if (!getenv("HOST_GPU_KEEP")) std::filesystem::remove_all(path, ignored);
    }
};

std::string stem(const gdni_nvrtcprog_opaque &p)
{
    return p.name.substr(0, p.name.find('.'));
}

/* --gpu-architecture=sm_90a -> 90 */
int capability_of(int num_options, const char *const *options)
{
    for (int i = 0; i < num_options; ++i)
        if (const char *arch = strstr(options[i], "sm_")) return atoi(arch + 3);
    throw std::runtime_error("no option says for which arch");
}

std::string compile_command(const Folder &folder, int capability, int num_options, const char *const *options)
{
    /* Lanes jump between stacks, which a fortified longjmp takes for an error. */
    std::string command = "'" HOST_GPU_CXX "' -std=c++20 -Og -w -fPIC -shared -fno-strict-aliasing -ffp-contract=off"
                                       " -U_FORTIFY_SOURCE"
                                       " -fno-gnu-unique -fvisibility=hidden -I'" HOST_GPU_TESTS "' -I'" HOST_GPU_TESTS "/host_gpu/kernel' -I'" +
                          folder.path.string() + "'";
    if (getenv("HOST_GPU_KEEP")) command += " -g1"; /* lines for addr2line, a fifth of the time */
    if (getenv("HOST_GPU_CHECKED")) command += " -DGDN_CHECKED"; /* as a checked build of the library has it */
    for (int i = 0; i < num_options; ++i) {
        const std::string option = options[i];
        if (option.rfind("--define-macro=", 0) == 0) command += " '-D" + option.substr(15) + "'";
    }
    command += " -DHOST_GPU_ARCH=" + std::to_string(10 * capability); /* as __CUDA_ARCH__ */
    const std::string path = folder.path.string();
    return command + " -o '" + path + "/kernel.so' '" + path + "/unit.cc' 2> '" + path + "/log'";
}

/* CTAs of a cluster, which a kernel says itself, or by a macro of one of its headers. */
int cluster_of(const gdni_nvrtcprog_opaque &p)
{
    const std::string attribute = "__cluster_dims__(";
    std::string source = p.source;
    for (const auto &[name, text] : p.headers)
        source += text;
    const size_t at = source.find(attribute);
    return at == std::string::npos ? 1 : std::stoi(source.substr(at + attribute.size()));
}

std::string unit_of(const gdni_nvrtcprog_opaque &p)
{
    return "#define HOST_GPU_CLUSTER " + std::to_string(cluster_of(p)) + "\n#include \"ptx.h\"\n#line 1 \"" + p.name + "\"\n" + host_gpu_translate(p.source) +
           "\n#include \"entry.h\"\nHOST_GPU_ENTRY_OF(" + stem(p) + ")\n";
}

int compile(gdni_nvrtcprog_opaque &p, int num_options, const char *const *options)
{
    const Folder folder;
    const int capability = capability_of(num_options, options);
    for (const auto &[name, text] : p.headers)
        write_file(folder.path / name, host_gpu_translate(text));
    write_file(folder.path / "unit.cc", unit_of(p));
    const int status = system(compile_command(folder, capability, num_options, options).c_str());
    p.log = read_file(folder.path / "log");
    if (status) return COMPILATION;
    const std::string object = read_file(folder.path / "kernel.so"), kernel = stem(p);
    const fake_cubin cubin = { object.data(), object.size(), kernel.c_str(), (unsigned)capability, 0, 0 };
    p.cubin.resize(fake_cubin_size(&cubin));
    fake_cubin_write(&cubin, p.cubin.data());
    p.log = "ptxas info    : Used 0 registers\n";
    return OK;
}

} // namespace

extern "C" {
#define X(name, arguments) gdni_nvrtcresult name arguments;
GDNI_NVRTC_CALLS(X)
#undef X
const char *nvrtcGetErrorString(gdni_nvrtcresult result);

const char *nvrtcGetErrorString(gdni_nvrtcresult result)
{
    return result == OK ? "NVRTC_SUCCESS" : result == COMPILATION ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_INVALID_INPUT";
}

gdni_nvrtcresult nvrtcVersion(int *major, int *minor)
{
    *major = 13;
    *minor = 0;
    return OK;
}

gdni_nvrtcresult nvrtcCreateProgram(gdni_nvrtcprog *program, const char *source, const char *name, int num_headers,
                                    const char *const *headers, const char *const *include_names)
{
    *program = new gdni_nvrtcprog_opaque{ source, name, {}, {}, {} };
    for (int i = 0; i < num_headers; ++i)
        (*program)->headers.emplace_back(include_names[i], headers[i]);
    return OK;
}

gdni_nvrtcresult nvrtcDestroyProgram(gdni_nvrtcprog *program)
{
    delete *program;
    *program = nullptr;
    return OK;
}

gdni_nvrtcresult nvrtcCompileProgram(gdni_nvrtcprog program, int num_options, const char *const *options)
{
    try {
        return compile(*program, num_options, options);
    } catch (const std::exception &error) {
        program->log = std::string(error.what()) + "\n";
        return COMPILATION;
    }
}

gdni_nvrtcresult nvrtcGetProgramLogSize(gdni_nvrtcprog program, size_t *size)
{
    *size = program->log.size() + 1;
    return OK;
}

gdni_nvrtcresult nvrtcGetProgramLog(gdni_nvrtcprog program, char *log)
{
    memcpy(log, program->log.c_str(), program->log.size() + 1);
    return OK;
}

gdni_nvrtcresult nvrtcGetCUBINSize(gdni_nvrtcprog program, size_t *size)
{
    *size = program->cubin.size();
    return OK;
}

gdni_nvrtcresult nvrtcGetCUBIN(gdni_nvrtcprog program, char *cubin)
{
    memcpy(cubin, program->cubin.data(), program->cubin.size());
    return OK;
}

gdni_nvrtcresult nvrtcGetPTXSize(gdni_nvrtcprog, size_t *)
{
    return INVALID;
}

gdni_nvrtcresult nvrtcGetPTX(gdni_nvrtcprog, char *)
{
    return INVALID;
}
}
