// consumer.cpp - the same embedder, as C++11: the header has to be C++ too.
#include "consumer.c"
