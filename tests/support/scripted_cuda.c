/* A scripted driver library for tests of the cuda backend: the device is the host's memory, and it knows some kernels.

   Each call but the first ones needs the context of its thread, as the real library does. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK 0
#define INVALID_VALUE 1
#define OUT_OF_MEMORY 2
#define INVALID_CONTEXT 201
#define INVALID_PTX 218
#define NOT_FOUND 500
#define ILLEGAL_ADDRESS 700
#define MAX_BYTES (1 << 26)

static __thread void *current;
static int device_context, pending_error;
static const char *names[] = {"scale", "dims", "trap"};

#define NEEDS_CONTEXT if (current != &device_context) return INVALID_CONTEXT

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : OK; }
int cuDeviceGetCount(int *count) { *count = 1; return OK; }
int cuDeviceGet(int *device, int number) { *device = number; return OK; }
int cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "scripted GPU %d", device); return OK; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 1 ? 1024 : attribute == 8 ? 49152 : 0;
    return OK;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &device_context; return OK; }
int cuCtxSetCurrent(void *context) { current = context; return OK; }
int cuStreamCreate(void **stream, unsigned flags) { NEEDS_CONTEXT; *stream = malloc(1); return OK; }
int cuStreamSynchronize(void *stream) { NEEDS_CONTEXT; return stream ? pending_error : INVALID_VALUE; }

int cuModuleLoadDataEx(void **module, const char *image, unsigned count, int *options, void **values) {
    NEEDS_CONTEXT;
    if (count != 2 || options[0] != 5 || options[1] != 6) return INVALID_VALUE;
    if (!strstr(image, ".version")) {
        snprintf(values[0], (size_t)values[1], "ptxas fatal : expected .version");
        return INVALID_PTX;
    }
    *module = strdup(image);
    return OK;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    NEEDS_CONTEXT;
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, names[i]) && strstr(module, name)) { *function = (void *)names[i]; return OK; }
    return NOT_FOUND;
}
int cuMemAlloc_v2(uint64_t *address, size_t size) {
    NEEDS_CONTEXT;
    if (size > MAX_BYTES) return OUT_OF_MEMORY;
    char *memory = malloc(size);
    memset(memory, 0xa5, size); /* it is not zeroed */
    *address = (uint64_t)memory;
    return OK;
}
int cuMemFree_v2(uint64_t address) { NEEDS_CONTEXT; free((void *)address); return OK; }
int cuMemcpyHtoDAsync_v2(uint64_t to, void *from, size_t size, void *stream) {
    NEEDS_CONTEXT; memcpy((void *)to, from, size); return OK;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream) {
    NEEDS_CONTEXT; memcpy(to, (void *)from, size); return OK;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream) {
    NEEDS_CONTEXT; memcpy((void *)to, (void *)from, size); return OK;
}
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t size, void *stream) {
    NEEDS_CONTEXT; memset((void *)to, value, size); return OK;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra) {
    NEEDS_CONTEXT;
    if (!gx || !gy || !gz || bx * by * bz > 1024) return INVALID_VALUE;
    if (function == (void *)names[0]) { /* y[i] += alpha * x[i] + shift */
        const float *x = *(float **)parameters[0], alpha = *(float *)parameters[2];
        float *y = *(float **)parameters[1];
        for (unsigned i = 0; i < gx * bx; i++) y[i] += alpha * x[i] + *(unsigned char *)parameters[3];
    } else if (function == (void *)names[1]) {
        unsigned seen[] = {gx, gy, gz, bx, by, bz, shared};
        memcpy(*(void **)parameters[0], seen, sizeof seen);
    } else pending_error = ILLEGAL_ADDRESS;
    return OK;
}
int cuGetErrorName(int error, const char **name) {
    *name = error == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_SCRIPTED";
    return OK;
}
int cuGetErrorString(int error, const char **text) { *text = "as the script says"; return OK; }
