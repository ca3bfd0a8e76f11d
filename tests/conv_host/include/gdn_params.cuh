// The launch struct from the same list that the generator prints it from.
struct conv1d_params {
    GDNI_CONV1D_PARAMS(DEVICE_IN, DEVICE_OUT, DEVICE_I64, DEVICE_I32, DEVICE_F32)
};
static_assert(sizeof(conv1d_params) == sizeof(gdni_conv1d_params), "host and device differ");
