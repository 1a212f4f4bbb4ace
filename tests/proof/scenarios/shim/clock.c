/* Moves the wall clock of a process that loads this library by LD_PRELOAD. It adds a number of µs
 * to the time of the system. The environment variable SCENARIO_CLOCK names the file with that
 * number, in 64 bits. The file is mapped into memory. So the clock jumps as soon as the file is
 * written. Monotonic clocks are not changed.
 *
 * The library calls the kernel directly. A lookup of the real functions would allocate memory, and
 * jemalloc, which reads the time, would call this library again. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(long) == 8 && sizeof(time_t) == 8, "64-bit only");

static volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void)
{
	const char *path = getenv("SCENARIO_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *p = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
	if (p != MAP_FAILED)
		offset = p;
	close(fd);
}

static int64_t now_ns(clockid_t id)
{
	struct timespec ts;
	if (syscall(SYS_clock_gettime, id, &ts) != 0)
		return -1;
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec + (offset ? *offset * 1000 : 0);
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
	if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)
		return syscall(SYS_clock_gettime, id, ts);
	int64_t now = now_ns(id);
	if (now < 0)
		return -1;
	ts->tv_sec = now / 1000000000;
	ts->tv_nsec = now % 1000000000;
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	(void)tz;
	int64_t now = now_ns(CLOCK_REALTIME);
	if (now < 0)
		return -1;
	tv->tv_sec = now / 1000000000;
	tv->tv_usec = now % 1000000000 / 1000;
	return 0;
}

time_t time(time_t *out)
{
	time_t now = now_ns(CLOCK_REALTIME) / 1000000000;
	if (out)
		*out = now;
	return now;
}
