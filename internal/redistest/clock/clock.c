/* Moves the wall clock of a process that loads this library by LD_PRELOAD. It adds a number of µs to the
 * time of the kernel. The environment variable REDISTEST_CLOCK names the file with that number, in 64 bits.
 * Monotonic clocks are not changed. The library calls the kernel directly: a lookup of the real functions
 * would allocate memory, and the allocator reads the time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void)
{
	const char *path = getenv("REDISTEST_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *p = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
	if (p != MAP_FAILED)
		offset = p;
	close(fd);
}

static int64_t now_us(void)
{
	struct timespec ts;
	syscall(SYS_clock_gettime, CLOCK_REALTIME, &ts);
	return ts.tv_sec * INT64_C(1000000) + ts.tv_nsec / 1000 + (offset ? *offset : 0);
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
	if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)
		return syscall(SYS_clock_gettime, id, ts);
	int64_t now = now_us();
	ts->tv_sec = now / 1000000;
	ts->tv_nsec = now % 1000000 * 1000;
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	(void)tz;
	int64_t now = now_us();
	tv->tv_sec = now / 1000000;
	tv->tv_usec = now % 1000000;
	return 0;
}

time_t time(time_t *out)
{
	time_t now = now_us() / 1000000;
	if (out)
		*out = now;
	return now;
}
