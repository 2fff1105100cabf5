/* Two network namespaces and a link between them on which every packet is late by the same time.
 *
 *   far_link ONE_WAY_US
 *
 * Says "ready PID" on stdout: this process is in the near namespace, where the link's device has the address
 * 10.77.0.1, and PID is a process in the far one, where it has 10.77.0.2. Both namespaces end with this process.
 * TCP sees the delay, so that Nagle's algorithm and delayed acknowledgements behave as over a long distance; a proxy that
 * answers late does not show them. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PACKET_BYTES = 2048, QUEUED_MAX = 16384 };

struct packet {
  long long due_ns;
  ssize_t length;
  char bytes[PACKET_BYTES];
};

/* Packets of one direction, in order: all are late by the same time. */
struct queue {
  struct packet *packets;
  unsigned head, tail;
};

static void give_up(const char *what) {
  fprintf(stderr, "far_link: %s: %s\n", what, strerror(errno));
  exit(1);
}

static long long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void set_address(struct ifreq *device, int socket, unsigned long request, const char *text) {
  struct sockaddr_in address = { .sin_family = AF_INET };
  inet_pton(AF_INET, text, &address.sin_addr);
  memcpy(&device->ifr_addr, &address, sizeof address);
  if (ioctl(socket, request, device) < 0) give_up("cannot set an address");
}

static void bring_up(struct ifreq *device, int socket) {
  device->ifr_flags = IFF_UP | IFF_RUNNING;
  if (ioctl(socket, SIOCSIFFLAGS, device) < 0) give_up("cannot bring a device up");
}

/* Enters a new namespace and opens the link's end in it. */
static int open_end(const char *address) {
  if (unshare(CLONE_NEWNET) < 0) give_up("cannot make a network namespace (it needs root)");
  int tunnel = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (tunnel < 0) give_up("/dev/net/tun");
  int socket_for_settings = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket_for_settings < 0) give_up("no socket");
  struct ifreq device;
  memset(&device, 0, sizeof device);
  strncpy(device.ifr_name, "lo", IFNAMSIZ - 1);
  bring_up(&device, socket_for_settings);
  memset(&device, 0, sizeof device);
  strncpy(device.ifr_name, "far0", IFNAMSIZ - 1);
  device.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (ioctl(tunnel, TUNSETIFF, &device) < 0) give_up("cannot make a tunnel device");
  set_address(&device, socket_for_settings, SIOCSIFADDR, address);
  set_address(&device, socket_for_settings, SIOCSIFNETMASK, "255.255.255.0");
  bring_up(&device, socket_for_settings);
  close(socket_for_settings);
  return tunnel;
}

/* A process that does nothing but keep its namespace. */
static pid_t keep_namespace(void) {
  pid_t parent = getpid(), keeper = fork();
  if (keeper < 0) give_up("cannot fork");
  if (keeper > 0) return keeper;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (getppid() == parent) pause();
  _exit(0);
}

/* Reads what has arrived; what does not fit is lost, as on any network. */
static void take_in(int tunnel, struct queue *queue, long long delay_ns) {
  for (;;) {
    struct packet *packet = &queue->packets[queue->tail % QUEUED_MAX];
    static char lost[PACKET_BYTES];
    int is_full = queue->tail - queue->head == QUEUED_MAX;
    ssize_t length = read(tunnel, is_full ? lost : packet->bytes, PACKET_BYTES);
    if (length <= 0) return;
    if (is_full) continue;
    packet->length = length;
    packet->due_ns = now_ns() + delay_ns;
    queue->tail++;
  }
}

/* Writes what is due; the time until the next is. */
static long long let_out(int tunnel, struct queue *queue) {
  while (queue->head != queue->tail) {
    struct packet *packet = &queue->packets[queue->head % QUEUED_MAX];
    long long left_ns = packet->due_ns - now_ns();
    if (left_ns > 0) return left_ns;
    if (write(tunnel, packet->bytes, packet->length) < 0 && errno == EAGAIN) return 50000;
    queue->head++;
  }
  return 1000000000LL;
}

int main(int count, char **arguments) {
  if (count != 2) {
    fprintf(stderr, "usage: far_link ONE_WAY_US\n");
    return 2;
  }
  int tunnels[2];
  tunnels[0] = open_end("10.77.0.1");
  int near = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  tunnels[1] = open_end("10.77.0.2");
  pid_t keeper = keep_namespace();
  if (near < 0 || setns(near, CLONE_NEWNET) < 0) give_up("cannot go back to the near namespace");
  long long delay_ns = atoll(arguments[1]) * 1000;
  struct queue queues[2];
  for (int i = 0; i < 2; i++) {
    queues[i].packets = malloc(sizeof(struct packet) * QUEUED_MAX);
    if (!queues[i].packets) give_up("no memory");
    queues[i].head = queues[i].tail = 0;
  }
  printf("ready %d\n", (int)keeper);
  fflush(stdout);
  for (;;) {
    long long left_ns = 1000000000LL;
    for (int i = 0; i < 2; i++) {
      take_in(tunnels[i], &queues[i], delay_ns);
      long long own_ns = let_out(tunnels[1 - i], &queues[i]);
      if (own_ns < left_ns) left_ns = own_ns;
    }
    struct pollfd waits[2] = { { tunnels[0], POLLIN, 0 }, { tunnels[1], POLLIN, 0 } };
    struct timespec timeout = { left_ns / 1000000000LL, left_ns % 1000000000LL };
    if (ppoll(waits, 2, &timeout, NULL) < 0 && errno != EINTR) give_up("cannot wait");
  }
}
