/* Runs a CNI plugin many times, some calls at once, and tells how long each took.
 *
 *     cniload PROGRAM CONFIG WORKERS CNI_PATH < calls > outcomes
 *
 * A call is a line: when to start (microseconds after the beginning; 0: as soon as a worker is free), CNI_COMMAND,
 * CNI_CONTAINERID, CNI_IFNAME and CNI_ARGS, parted by tabs. An outcome is a line: number of the call, start, wall time,
 * processor time of the plugin (all microseconds), exit status, and what the plugin printed, on one line.
 *
 * In C, with vfork inside posix_spawn: the load must not take the cores that the plugin and its daemon are measured on.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FIELDS = 5, OUTPUT = 16384 };

struct call {
	long at;
	char *env[8];
	long start, wall, cpu;
	int status;
	char *output;
};

static const char *program, *config;
static struct call *calls;
static size_t count;
static atomic_size_t next;
static struct timespec beginning;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static long now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (at.tv_sec - beginning.tv_sec) * 1000000L + (at.tv_nsec - beginning.tv_nsec) / 1000;
}

static char *variable(const char *name, const char *value)
{
	char *text;

	if (asprintf(&text, "%s=%s", name, value) < 0)
		die("asprintf");
	return text;
}

static void add(char *line, const char *path)
{
	char *field[FIELDS];

	for (int i = 0; i < FIELDS; i++)
		if ((field[i] = strsep(&line, "\t")) == NULL) {
			fprintf(stderr, "call %zu: a field is missing\n", count);
			exit(1);
		}
	if ((count & (count - 1)) == 0 && (calls = realloc(calls, (count ? 2 * count : 1) * sizeof *calls)) == NULL)
		die("realloc");
	struct call *one = &calls[count++];

	memset(one, 0, sizeof *one);
	one->at = atol(field[0]);
	one->env[0] = variable("CNI_COMMAND", field[1]);
	one->env[1] = variable("CNI_CONTAINERID", field[2]);
	one->env[2] = variable("CNI_IFNAME", field[3]);
	one->env[3] = variable("CNI_ARGS", field[4]);
	one->env[4] = variable("CNI_PATH", path);
	one->env[5] = "CNI_NETNS=/var/run/netns/of-nobody";
	one->env[6] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
}

static char *output_of(int from)
{
	static _Thread_local char text[OUTPUT];
	size_t length = 0;
	ssize_t got;

	/* The end comes when the plugin is gone; what does not fit is read and dropped. */
	while ((got = read(from, text + length, sizeof text - 1 - length)) != 0) {
		if (got < 0 && errno != EINTR)
			break;
		length += got > 0 ? (size_t)got : 0;
		if (length > sizeof text - 1024)
			length = sizeof text - 1024;
	}
	text[length] = 0;
	for (size_t i = 0; i < length; i++)
		if (text[i] == '\n' || text[i] == '\t' || text[i] == '\r')
			text[i] = ' ';
	return strdup(text);
}

static void run(struct call *one)
{
	posix_spawn_file_actions_t files;
	char *arguments[] = {(char *)program, NULL};
	struct rusage used;
	int pipes[2], failed;
	pid_t child;

	if (pipe2(pipes, O_CLOEXEC))
		die("pipe");
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 0, config, O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&files, pipes[1], 1);
	posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
	one->start = now();
	if ((failed = posix_spawn(&child, program, &files, NULL, arguments, one->env)) != 0) {
		errno = failed;
		die(program);
	}
	close(pipes[1]);
	one->output = output_of(pipes[0]);
	while (wait4(child, &one->status, 0, &used) < 0)
		if (errno != EINTR)
			die("wait4");
	one->wall = now() - one->start;
	one->cpu = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000L + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
	close(pipes[0]);
	posix_spawn_file_actions_destroy(&files);
}

static void *work(void *unused)
{
	size_t number;

	while ((number = atomic_fetch_add(&next, 1)) < count) {
		long early = calls[number].at - now();

		if (early > 0)
			usleep((useconds_t)early);
		run(&calls[number]);
	}
	return unused;
}

int main(int argc, char **argv)
{
	char *line = NULL;
	size_t size = 0;
	ssize_t length;

	if (argc != 5) {
		fprintf(stderr, "usage: cniload PROGRAM CONFIG WORKERS CNI_PATH < calls > outcomes\n");
		return 2;
	}
	program = argv[1];
	config = argv[2];
	while ((length = getline(&line, &size, stdin)) > 0) {
		line[strcspn(line, "\n")] = 0;
		add(line, argv[4]);
	}
	int workers = atoi(argv[3]);
	pthread_t threads[workers > 0 ? workers : 1];

	clock_gettime(CLOCK_MONOTONIC, &beginning);
	for (int i = 0; i < workers; i++)
		if ((errno = pthread_create(&threads[i], NULL, work, NULL)) != 0)
			die("pthread_create");
	for (int i = 0; i < workers; i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < count; i++) {
		struct call *one = &calls[i];
		int code = WIFEXITED(one->status) ? WEXITSTATUS(one->status) : 128 + WTERMSIG(one->status);

		printf("%zu\t%ld\t%ld\t%ld\t%d\t%s\n", i, one->start, one->wall, one->cpu, code, one->output);
	}
	return 0;
}
