/* A wall clock that a test can shift while a program runs; see dev/postgres.py.

   Preloaded, it adds the nanoseconds in the file $CLOCK_OFFSET_FILE (eight bytes, as the machine
   writes a long) to what the program is told of CLOCK_REALTIME. Other clocks are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static const long no_offset = 0;
static const volatile long *offset = &no_offset;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CLOCK_OFFSET_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) { /* shared with those who are forked later, and with whoever writes the file */
        void *seen = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
        if (seen != MAP_FAILED)
            offset = seen;
    }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real_clock_gettime)
        *(void **)&real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real_clock_gettime(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long shifted_ns = now->tv_nsec + *offset % 1000000000L;
        now->tv_sec += *offset / 1000000000L;
        if (shifted_ns < 0) {
            shifted_ns += 1000000000L;
            now->tv_sec -= 1;
        } else if (shifted_ns >= 1000000000L) {
            shifted_ns -= 1000000000L;
            now->tv_sec += 1;
        }
        now->tv_nsec = shifted_ns;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    int failed = clock_gettime(CLOCK_REALTIME, &found);
    (void)zone;
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *at) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (at)
        *at = found.tv_sec;
    return found.tv_sec;
}
