/* version.h - version of the header; CMakeLists.txt reads the project version from here. */
#ifndef GDN_JIT_VERSION_H
#define GDN_JIT_VERSION_H

#define GDN_VERSION_MAJOR 0
#define GDN_VERSION_MINOR 1
#define GDN_VERSION_PATCH 0
#define GDN_VERSION (GDN_VERSION_MAJOR * 10000 + GDN_VERSION_MINOR * 100 + GDN_VERSION_PATCH)

#endif
