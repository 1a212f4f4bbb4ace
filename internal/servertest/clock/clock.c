/* Moves the wall clock of a process that loads this library by LD_PRELOAD. It adds a number of µs to the
 * time of the kernel. The environment variable REDISTEST_CLOCK names the file with that number, in 64 bits.
 * Monotonic clocks are not changed. The library calls the kernel directly: a lookup of the real functions
 * would allocate memory, and the allocator reads the time.
 *
 * Programs in Go don't call libc for the time, but code that the kernel maps into each process, the vDSO. If
 * REDISTEST_CLOCK_VDSO is set, the library overwrites the beginning of its clock_gettime with a jump to the one below.
 * That happens before the program itself begins, and in its process alone. If it fails, the process exits. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

#if defined(__x86_64__)
#define VDSO_CLOCK_GETTIME "__vdso_clock_gettime"
static const unsigned char jump[] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3}; /* mov r11, to; jmp r11 */
enum { to = 2 };
#elif defined(__aarch64__)
#define VDSO_CLOCK_GETTIME "__kernel_clock_gettime"
static const unsigned char jump[] = {0x50, 0, 0, 0x58, 0, 0x02, 0x1f, 0xd6, 0, 0, 0, 0, 0, 0, 0, 0}; /* ldr x16, to; br x16 */
enum { to = 8 };
#endif

/* Finds the mapping with an address. The kernel changes the protection of all of the vDSO or of nothing. */
static int mapping(void *at, uintptr_t *from, uintptr_t *end)
{
	char line[512];
	int found = 0;
	FILE *maps = fopen("/proc/self/maps", "re");
	while (maps && !found && fgets(line, sizeof line, maps))
		found = sscanf(line, "%" SCNxPTR "-%" SCNxPTR, from, end) == 2 && *from <= (uintptr_t)at && (uintptr_t)at < *end;
	if (maps)
		fclose(maps);
	return found;
}

__attribute__((constructor)) static void patch_vdso(void)
{
	if (!getenv("REDISTEST_CLOCK_VDSO"))
		return;
#ifdef VDSO_CLOCK_GETTIME
	void *vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
	unsigned char *f = vdso ? dlsym(vdso, VDSO_CLOCK_GETTIME) : NULL;
	int (*hook)(clockid_t, struct timespec *) = clock_gettime;
	uintptr_t from, end;
	if (f && mapping(f, &from, &end) && mprotect((void *)from, end - from, PROT_READ | PROT_WRITE | PROT_EXEC) == 0) {
		memcpy(f, jump, sizeof jump);
		memcpy(f + to, &hook, sizeof hook);
		mprotect((void *)from, end - from, PROT_READ | PROT_EXEC);
		__builtin___clear_cache((char *)f, (char *)f + sizeof jump);
		return;
	}
#endif
	fputs("clock: the vDSO can't be patched on this system\n", stderr);
	_exit(1);
}
