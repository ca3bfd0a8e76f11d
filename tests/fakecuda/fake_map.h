/*
 * fake_map.h - a tensor map as the fake driver encodes one: what it was asked for.
 */
#ifndef FAKE_MAP_H
#define FAKE_MAP_H

#include <stdint.h>

struct fake_map {
    uint64_t address;
    uint64_t dims[5];
    uint64_t strides[4]; /* bytes, of dims 1 to 4 */
    uint32_t box[5];
};

#endif
