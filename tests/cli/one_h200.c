/*
 * one_h200.c - makes the fake libcuda a driver that any program finds one H200 with: nobody is there to call its controls.
 */
#include "fakecuda/fakecuda.h"

extern const struct fake_controls fake_controls;

__attribute__((constructor)) static void plug_in(void)
{
    fake_controls.reset();
}
