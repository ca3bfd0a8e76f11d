/*
 * translate.h - CUDA C++ of the templates -> C++ for kernel/ptx.h: inline PTX becomes calls by its text, shared memory becomes
 * the CTA's that runs. Everything else stays as it is, line by line.
 */
#ifndef HOST_GPU_TRANSLATE_H
#define HOST_GPU_TRANSLATE_H

#include <string>

/* Throws std::runtime_error with a sentence where a statement is none that it knows. */
std::string host_gpu_translate(const std::string &source);

#endif
