/*
 * results.c - one measurement as one JSON line: owns the field names, their order and what is left out.
 */
#include <math.h>
#include <string.h>
#include <time.h>

#include "common/bench.h"

enum { MAX_LISTED_LENS = 64 };

struct bench_line bench_line_init(void)
{
    const struct bench_line line = {
        .impl = "gdn-jit", .h0 = -1, .err_o = NAN, .err_state = NAN, .maxabs_o = NAN, .maxabs_state = NAN
    };
    return line;
}

static void put_string(FILE *f, const char *key, const char *value)
{
    if (!value) return;
    fprintf(f, ",\"%s\":\"", key);
    for (const char *c = value; *c; ++c) {
        if (*c == '"' || *c == '\\') fputc('\\', f);
        fputc((unsigned char)*c < 0x20 ? ' ' : *c, f);
    }
    fputc('"', f);
}

static void put_json(FILE *f, const char *key, const char *json)
{
    if (json) fprintf(f, ",\"%s\":%s", key, json);
}

static void put_int(FILE *f, const char *key, int64_t value)
{
    if (value != 0) fprintf(f, ",\"%s\":%lld", key, (long long)value);
}

/* JSON has no NaN and no infinity: a NaN was not measured, an infinite error is written as 1e999, which readers take as one. */
static void put_real(FILE *f, const char *key, double value, const char *format)
{
    if (isnan(value)) return;
    fprintf(f, ",\"%s\":", key);
    if (isinf(value))
        fputs("1e999", f);
    else
        fprintf(f, format, value);
}

static void put_lens(FILE *f, const struct bench_line *line)
{
    if (!line->cu_seqlens) return;
    if (line->num_seqs > MAX_LISTED_LENS) {
        uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a over the lengths as 32-bit words */
        for (int64_t i = 0; i < line->num_seqs; ++i)
            hash = (hash ^ (uint32_t)(line->cu_seqlens[i + 1] - line->cu_seqlens[i])) * 0x100000001b3u;
        fprintf(f, ",\"lens\":\"%016llx\"", (unsigned long long)hash);
        return;
    }
    fputs(",\"lens\":[", f);
    for (int64_t i = 0; i < line->num_seqs; ++i)
        fprintf(f, "%s%d", i ? "," : "", line->cu_seqlens[i + 1] - line->cu_seqlens[i]);
    fputc(']', f);
}

static void put_shape(FILE *f, const struct bench_line *line)
{
    put_int(f, "num_seqs", line->num_seqs);
    put_int(f, "tokens", line->tokens);
    put_int(f, "hq", line->hq);
    put_int(f, "hk", line->hk);
    put_int(f, "hv", line->hv);
    put_int(f, "dk", line->dk);
    put_int(f, "dv", line->dv);
    put_int(f, "q_dim", line->q_dim);
    put_int(f, "k_dim", line->k_dim);
    put_int(f, "v_dim", line->v_dim);
    put_int(f, "width", line->width);
    put_string(f, "case", line->name);
    put_lens(f, line);
    if (line->h0 >= 0) fprintf(f, ",\"h0\":%s", line->h0 ? "true" : "false");
    put_string(f, "state_dtype", line->state_dtype);
    put_string(f, "layout", line->layout);
    put_int(f, "capacity", line->capacity);
    put_string(f, "gates", line->gates);
    put_json(f, "features", line->features);
    put_string(f, "variant", line->variant);
    put_json(f, "params", line->params);
}

static void put_numbers(FILE *f, const struct bench_line *line)
{
    put_string(f, "method", line->method);
    put_string(f, "l2", line->l2);
    put_real(f, "median_us", line->times.median_us, "%.3f");
    put_real(f, "mad_us", line->times.mad_us, "%.3f");
    put_int(f, "samples", line->times.samples);
    put_real(f, "sustained_us", line->times.sustained_us > 0.0 ? line->times.sustained_us : NAN, "%.3f");
    put_real(f, "ratio_to_copy", line->ratio_to_copy > 0.0 ? line->ratio_to_copy : NAN, "%.4f");
    put_real(f, "err_o", line->err_o, "%.3e");
    put_real(f, "err_state", line->err_state, "%.3e");
    put_real(f, "maxabs_o", line->maxabs_o, "%.3e");
    put_real(f, "maxabs_state", line->maxabs_state, "%.3e");
}

/* "580.95.05" from the kernel module, where it says so. */
static void driver_version(char *out, size_t size)
{
    char text[256] = "";
    FILE *file = fopen("/proc/driver/nvidia/version", "r");
    if (file && !fgets(text, sizeof text, file)) text[0] = '\0';
    if (file) fclose(file);
    const char *at = strstr(text, "x86_64  ");
    if (!at) at = strstr(text, "Kernel Module  ");
    at = at ? strstr(at, "  ") + 2 : NULL;
    int api = 0;
    CU(cuDriverGetVersion(&api));
    if (at)
        snprintf(out, size, "%.*s", (int)strcspn(at, " \n"), at);
    else
        snprintf(out, size, "CUDA %d.%d", api / 1000, api % 1000 / 10);
}

static void put_machine(FILE *f, const struct bench_options *options, gdn_ctx *ctx)
{
    char gpu[64] = "", driver[64] = "", date[32] = "", versions[64];
    gdn_doctor doctor = GDN_DOCTOR_INIT;
    cu_device device = 0;
    const time_t now = time(NULL);
    struct tm tm;
    GDN(gdn_examine(ctx, &doctor));
    CU(cuDeviceGet(&device, options->device));
    CU(cuDeviceGetName(gpu, sizeof gpu, device));
    driver_version(driver, sizeof driver);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    snprintf(versions, sizeof versions, "{\"gdn-jit\":\"%u.%u.%u\"}", gdn_version() / 10000, gdn_version() / 100 % 100,
             gdn_version() % 100);
    put_string(f, "gpu", gpu);
    put_string(f, "driver", driver);
    put_string(f, "nvrtc", doctor.nvrtc);
    put_json(f, "versions", versions);
    put_string(f, "commit", options->commit);
    put_string(f, "date", date);
}

static void put_line(FILE *f, const struct bench_options *options, gdn_ctx *ctx, const struct bench_line *line)
{
    fprintf(f, "{\"op\":\"%s\"", line->op);
    put_string(f, "impl", line->impl);
    put_string(f, "dtype", line->dtype);
    put_shape(f, line);
    put_numbers(f, line);
    put_machine(f, options, ctx);
    fputs("}\n", f);
}

static void print_line(const struct bench_line *line)
{
    printf("%-11s %-16s %-34s %-5s %-7s %-5s %10.2f us", line->op, line->impl, line->name,
           line->dtype ? line->dtype : "", line->gates ? line->gates : "", line->l2 ? line->l2 : "",
           line->times.median_us);
    if (line->variant) printf("  %s", line->variant);
    if (line->times.sustained_us > 0.0) printf("  sustained %10.2f", line->times.sustained_us);
    if (line->ratio_to_copy > 0.0) printf("  %5.1f %% of copy", 100.0 * line->ratio_to_copy);
    if (!isnan(line->err_o)) printf("  err o %.1e", line->err_o);
    if (!isnan(line->err_state)) printf("  state %.1e", line->err_state);
    putchar('\n');
    fflush(stdout);
}

FILE *bench_open(const struct bench_options *options)
{
    FILE *file = fopen(options->out, "a");
    if (file) return file;
    perror(options->out);
    exit(2);
}

void bench_write(const struct bench_options *options, gdn_ctx *ctx, const struct bench_line *line)
{
    print_line(line);
    if (!options->out) return;
    FILE *file = bench_open(options);
    put_line(file, options, ctx, line);
    fclose(file);
}
