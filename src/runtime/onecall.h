/*
 * onecall.h - the plans that gdn_prefill() and gdn_conv1d_qkv() made, kept until the context goes.
 */
#ifndef GDNI_ONECALL_H
#define GDNI_ONECALL_H

struct gdni_onecall;

struct gdni_onecall *gdni_onecall_create(void); /* NULL when out of memory */
void gdni_onecall_destroy(struct gdni_onecall *onecall);

#endif
