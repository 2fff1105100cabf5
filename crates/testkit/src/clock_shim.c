/* Shifts the wall clock of one process: loaded with LD_PRELOAD, it adds the signed number of microseconds found in
 * the file named by TESTKIT_CLOCK_FILE to everything that reads the real-time clock. The file is mapped, so a step
 * takes effect at the next read and costs the process nothing. Monotonic clocks stay as they are. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset_us;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("TESTKIT_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) {
        fprintf(stderr, "clock shim: cannot map TESTKIT_CLOCK_FILE=%s\n", path ? path : "(unset)");
        _exit(1);
    }
    close(file);
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    offset_us = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    /* Other constructors may run, and read the clock, before ours. */
    int result = real_clock_gettime ? real_clock_gettime(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
    if (result != 0 || offset_us == NULL || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) {
        return result;
    }
    int64_t offset = *offset_us;
    int64_t nanos = now->tv_nsec + offset % 1000000 * 1000;
    now->tv_sec += offset / 1000000;
    if (nanos < 0) {
        nanos += 1000000000;
        now->tv_sec -= 1;
    } else if (nanos >= 1000000000) {
        nanos -= 1000000000;
        now->tv_sec += 1;
    }
    now->tv_nsec = nanos;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec time;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &time);
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL) {
        *out = now.tv_sec;
    }
    return now.tv_sec;
}
