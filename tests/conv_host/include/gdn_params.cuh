// The launch struct from the same list that the generator prints it from.
#pragma once
#define DEVICE_IN(type, name) const type *name;
#define DEVICE_OUT(type, name) type *name;
#define DEVICE_I64(name) long long name;
#define DEVICE_I32(name) int name;
#define DEVICE_OUT_3(type, name) type *name[3];
#define DEVICE_I64_3(name) long long name[3];
#define DEVICE_I32_3(name) int name[3];
struct conv1d_params {
    GDNI_CONV1D_PARAMS(DEVICE_IN, DEVICE_OUT, DEVICE_I64, DEVICE_I32, DEVICE_OUT_3, DEVICE_I64_3, DEVICE_I32_3)
};
static_assert(sizeof(conv1d_params) == sizeof(gdni_conv1d_params), "host and device differ");
