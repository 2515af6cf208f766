/* A library that answers as NVML does, for a machine with two GPUs. Variables of its process say what is wrong:
   FAKE_XID (told once), FAKE_ECC (uncorrected errors), FAKE_LOST=1, FAKE_PID (computes on the first GPU). */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, LOST = 15 };
typedef unsigned long long u64;
typedef struct { int index; } Gpu;
typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned pid; u64 bytes; unsigned gi, ci; } Process;
typedef struct { unsigned pid; u64 at; unsigned sm, mem, enc, dec; } Sample;
typedef struct { void *device; u64 type, data; unsigned gi, ci; } Event;

static Gpu gpus[2] = {{0}, {1}};
static int told;

static int number(const char *name) { const char *text = getenv(name); return text ? atoi(text) : 0; }

int nvmlInitWithFlags(unsigned flags) { return OK; }
int nvmlInit_v2(void) { return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : "another error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "570.86.10"); return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu) {
    if (index > 1) return INVALID;
    *gpu = &gpus[index];
    return OK;
}
int nvmlDeviceGetUUID(Gpu *gpu, char *text, unsigned size) { snprintf(text, size, "GPU-%d", gpu->index); return OK; }
int nvmlDeviceGetHandleByUUID(const char *text, void **gpu) {
    if (number("FAKE_LOST")) return LOST;
    if (strncmp(text, "GPU-", 4)) return NOT_FOUND;
    *gpu = &gpus[atoi(text + 4)];
    return OK;
}
int nvmlDeviceGetName(Gpu *gpu, char *text, unsigned size) { snprintf(text, size, "Fake %d", gpu->index); return OK; }
int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *memory) {
    memory->total = (u64)(8 + gpu->index) << 30;
    return OK;
}
int nvmlDeviceGetMinorNumber(Gpu *gpu, unsigned *minor) { *minor = gpu->index + 5; return OK; }
int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *now, unsigned *next) { return NOT_SUPPORTED; }
int nvmlDeviceGetTotalEccErrors(Gpu *gpu, int kind, int since, u64 *count) { *count = number("FAKE_ECC"); return OK; }

int nvmlDeviceGetComputeRunningProcesses_v3(Gpu *gpu, unsigned *count, Process *found) {
    if (gpu->index || !number("FAKE_PID")) { *count = 0; return OK; }
    if (!found) { *count = 1; return TOO_SMALL; }
    *count = 1;
    found[0] = (Process){number("FAKE_PID"), 1u << 30, -1, -1};
    return OK;
}
int nvmlDeviceGetProcessUtilization(Gpu *gpu, Sample *found, unsigned *count, u64 since) {
    if (gpu->index || !number("FAKE_PID")) return NOT_FOUND;
    if (!found) { *count = 2; return TOO_SMALL; }
    found[0] = (Sample){number("FAKE_PID"), 1000000, 50};
    found[1] = (Sample){number("FAKE_PID"), 2000000, 75};
    return OK;
}

int nvmlEventSetCreate(void **set) { *set = &told; return OK; }
int nvmlEventSetFree(void *set) { return OK; }
int nvmlDeviceRegisterEvents(Gpu *gpu, u64 types, void *set) { return OK; }
int nvmlEventSetWait_v2(void *set, Event *event, unsigned milliseconds) {
    if (told || !number("FAKE_XID")) return TIMEOUT;
    told = 1;
    *event = (Event){&gpus[1], 8, number("FAKE_XID")};
    return OK;
}
