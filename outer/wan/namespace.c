/* SPDX-License-Identifier: Apache-2.0 */
/* A forked helper makes the namespace, sets it up from inside and hands the descriptors over
 * (SCM_RIGHTS). The caller itself never changes its namespaces. */
#include "outer/wan/namespace.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HANDED_MAX = 4, QUEUE_PACKETS = 20000 };
static const char DEVICE[] = "wan0";

struct word { /* what the helper has to say: empty, or why not */
    char text[256];
};

/* ---- in the helper ---- */
static bool word_say(struct word *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool word_say(struct word *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(w->text, sizeof w->text, format, args);
    va_end(args);
    return false;
}

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return good;
}

/* Root may have a network namespace for the asking; others get one inside a user namespace, in
 * which they stay who they are. */
static bool namespace_leave(struct word *w, bool *user)
{
    char map[64];
    uid_t uid = geteuid();
    gid_t gid = getegid();
    *user = false;
    if (unshare(CLONE_NEWNET) == 0)
        return true;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
        return word_say(w, "the kernel refuses a user and network namespace: %s", strerror(errno));
    *user = true;
    snprintf(map, sizeof map, "%u %u 1", uid, uid);
    bool good = write_text("/proc/self/setgroups", "deny") && write_text("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "%u %u 1", gid, gid);
    good = good && write_text("/proc/self/gid_map", map);
    return good ||
           word_say(w, "the kernel refuses the user namespace its user: %s", strerror(errno));
}

static struct ifreq request(const char *device)
{
    struct ifreq r = {0};
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", device);
    return r;
}

static bool device_up(int s, const char *device)
{
    struct ifreq r = request(device);
    r.ifr_flags = IFF_UP | IFF_RUNNING;
    return ioctl(s, SIOCSIFFLAGS, &r) == 0;
}

static bool device_address(int s, unsigned long what, uint32_t value)
{
    struct ifreq r = request(DEVICE);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(value)};
    memcpy(&r.ifr_addr, &a, sizeof a);
    return ioctl(s, what, &r) == 0;
}

/* One request to the kernel's routing; false: errno says why. */
static bool netlink_ask(void *ask, size_t size)
{
    struct {
        struct nlmsghdr head;
        struct nlmsgerr result;
        char rest[256];
    } answer = {0};
    int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    bool good =
        s >= 0 && send(s, ask, size, 0) == (ssize_t)size && recv(s, &answer, sizeof answer, 0) > 0;
    if (s >= 0)
        close(s);
    errno = good ? -answer.result.error : errno;
    return good && answer.result.error == 0;
}

/* Over netlink: the ioctl asks for privileges in the first user namespace. */
static bool lengthen_queue(void)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg link;
        struct rtattr queue;
        uint32_t packets;
    } ask = {
        .head = {.nlmsg_len = sizeof ask,
                 .nlmsg_type = RTM_NEWLINK,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
        .link = {.ifi_index = (int)if_nametoindex(DEVICE)},
        .queue = {.rta_len = RTA_LENGTH(sizeof(uint32_t)), .rta_type = IFLA_TXQLEN},
        .packets = QUEUE_PACKETS,
    };
    return netlink_ask(&ask, sizeof ask);
}

/* A namespace may set as its default only what tcp_allowed_congestion_control lists; its routes may
 * name any that the kernel has. In place of the device's own route. */
static bool route_congestion(const struct namespace_setup *setup)
{
    enum { NAME_MAX_BYTES = 16 };
    struct {
        struct nlmsghdr head;
        struct rtmsg route;
        struct rtattr to;
        uint32_t network;
        struct rtattr from;
        uint32_t address;
        struct rtattr device;
        uint32_t index;
        struct rtattr metrics, congestion;
        char name[NAME_MAX_BYTES];
    } ask = {
        .head = {.nlmsg_len = sizeof ask,
                 .nlmsg_type = RTM_NEWROUTE,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE},
        .route = {.rtm_family = AF_INET,
                  .rtm_dst_len = 24,
                  .rtm_table = RT_TABLE_MAIN,
                  .rtm_protocol = RTPROT_KERNEL,
                  .rtm_scope = RT_SCOPE_LINK,
                  .rtm_type = RTN_UNICAST},
        .to = {.rta_len = RTA_LENGTH(sizeof(uint32_t)), .rta_type = RTA_DST},
        .network = htonl(setup->address & 0xFFFFFF00u),
        .from = {.rta_len = RTA_LENGTH(sizeof(uint32_t)), .rta_type = RTA_PREFSRC},
        .address = htonl(setup->address),
        .device = {.rta_len = RTA_LENGTH(sizeof(uint32_t)), .rta_type = RTA_OIF},
        .index = if_nametoindex(DEVICE),
        .metrics = {.rta_len = RTA_LENGTH(RTA_LENGTH(NAME_MAX_BYTES)), .rta_type = RTA_METRICS},
        .congestion = {.rta_len = RTA_LENGTH(NAME_MAX_BYTES), .rta_type = RTAX_CC_ALGO},
    };
    snprintf(ask.name, sizeof ask.name, "%s", setup->congestion);
    return netlink_ask(&ask, sizeof ask);
}

static bool configure(const struct namespace_setup *setup)
{
    struct ifreq mtu = request(DEVICE);
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    mtu.ifr_mtu = (int)setup->mtu;
    bool good = s >= 0 && device_address(s, SIOCSIFADDR, setup->address) &&
                device_address(s, SIOCSIFNETMASK, 0xFFFFFF00u) && ioctl(s, SIOCSIFMTU, &mtu) == 0 &&
                lengthen_queue() && device_up(s, DEVICE) && device_up(s, "lo");
    if (s >= 0)
        close(s);
    return good;
}

static bool tune(struct word *w, const struct namespace_setup *setup)
{
    char text[96];
    unsigned long most = setup->tcp_buffer_bytes;
    snprintf(text, sizeof text, "4096 131072 %lu", most);
    if (most && (!write_text("/proc/sys/net/ipv4/tcp_rmem", text) ||
                 !write_text("/proc/sys/net/ipv4/tcp_wmem", text)))
        return word_say(w, "the kernel refuses the size of TCP buffers: %s", strerror(errno));
    if (!setup->slow_start_after_idle &&
        !write_text("/proc/sys/net/ipv4/tcp_slow_start_after_idle", "0"))
        return word_say(w, "the kernel refuses tcp_slow_start_after_idle: %s", strerror(errno));
    /* Comfort, not needed: ping without privileges, and no chatter of IPv6. */
    snprintf(text, sizeof text, "%u %u", getegid(), getegid());
    (void)!write_text("/proc/sys/net/ipv4/ping_group_range", text);
    (void)!write_text("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    (void)!write_text("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    return true;
}

/* After the device is up: with it comes its route. */
static bool congestion_set(struct word *w, const struct namespace_setup *setup)
{
    return !*setup->congestion ||
           write_text("/proc/sys/net/ipv4/tcp_congestion_control", setup->congestion) ||
           route_congestion(setup) ||
           word_say(w,
                    "the kernel refuses congestion control \"%.40s\" (%s); see "
                    "net.ipv4.tcp_allowed_congestion_control",
                    setup->congestion, strerror(errno));
}

static bool build(struct word *w, const struct namespace_setup *setup, int fds[HANDED_MAX],
                  size_t *count)
{
    bool user;
    struct ifreq r = request(DEVICE);
    r.ifr_flags = IFF_TUN | IFF_NO_PI;
    if (!namespace_leave(w, &user))
        return false;
    fds[0] = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fds[0] < 0 || ioctl(fds[0], TUNSETIFF, &r) != 0)
        return word_say(w, "no TUN device (/dev/net/tun): %s", strerror(errno));
    if (!tune(w, setup))
        return false;
    if (!configure(setup))
        return word_say(w, "cannot set up the TUN device: %s", strerror(errno));
    if (!congestion_set(w, setup))
        return false;
    fds[1] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    fds[2] = open("/proc/self/net/dev", O_RDONLY | O_CLOEXEC);
    fds[3] = user ? open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC) : -1;
    *count = user ? 4 : 3;
    return (fds[1] >= 0 && fds[2] >= 0 && (!user || fds[3] >= 0)) ||
           word_say(w, "cannot hold the namespace: %s", strerror(errno));
}

/* ---- handing over ---- */
union control {
    char bytes[CMSG_SPACE(HANDED_MAX * sizeof(int))];
    struct cmsghdr align;
};

static bool hand_over(int s, const struct word *w, const int *fds, size_t count)
{
    union control c = {{0}};
    struct iovec part = {(void *)(uintptr_t)w, sizeof *w};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (count) {
        m.msg_control = c.bytes;
        m.msg_controllen = CMSG_SPACE(count * sizeof *fds);
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        *h = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                              .cmsg_type = SCM_RIGHTS,
                              .cmsg_len = CMSG_LEN(count * sizeof *fds)};
        memcpy(CMSG_DATA(h), fds, count * sizeof *fds);
    }
    return sendmsg(s, &m, 0) == (ssize_t)sizeof *w;
}

static size_t take_over(int s, struct word *w, int fds[HANDED_MAX])
{
    union control c = {{0}};
    struct iovec part = {w, sizeof *w};
    struct msghdr m = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c};
    if (recvmsg(s, &m, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *w) {
        word_say(w, "the helper that makes namespaces died");
        return 0;
    }
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (!h || h->cmsg_type != SCM_RIGHTS)
        return 0;
    size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    ASSERT(count <= HANDED_MAX);
    memcpy(fds, CMSG_DATA(h), count * sizeof(int));
    return count;
}

enum err namespace_open(struct namespace *n, const struct namespace_setup *setup)
{
    int pair[2], fds[HANDED_MAX] = {0};
    struct word w = {""};
    *n = (struct namespace){0};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return err_set(ERR_IO, "no socket pair: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        size_t count = 0;
        bool good = build(&w, setup, fds, &count);
        _exit(hand_over(pair[1], &w, fds, good ? count : 0) ? 0 : 1);
    }
    close(pair[1]);
    size_t count = pid > 0 ? take_over(pair[0], &w, fds) : 0;
    close(pair[0]);
    if (pid < 0)
        return err_set(ERR_IO, "cannot start a process: %s", strerror(errno));
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (count < 3)
        return err_set(ERR_UNSUPPORTED, "%s", w.text);
    *n = (struct namespace){.tun = fds[0], .net = fds[1], .counters = fds[2], .user = fds[3]};
    return ERR_OK;
}

int namespace_enter(const struct namespace *n)
{
    if (n->user && setns(n->user, CLONE_NEWUSER) != 0)
        return errno;
    return setns(n->net, CLONE_NEWNET) == 0 ? 0 : errno;
}

/* Fields of the device's line: received bytes, packets, errors, drops, ... (8), sent bytes,
 * packets, errors, drops. */
uint64_t namespace_missed(const struct namespace *n)
{
    char text[4096];
    ssize_t size = n->counters ? pread(n->counters, text, sizeof text - 1, 0) : 0;
    text[size > 0 ? size : 0] = 0;
    const char *at = strstr(text, DEVICE);
    unsigned long long dropped = 0;
    if (!at || sscanf(at + strlen(DEVICE), ": %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %llu",
                      &dropped) != 1)
        return 0;
    return dropped;
}

void namespace_close(struct namespace *n)
{
    int fds[] = {n->tun, n->net, n->user, n->counters};
    for (int i = 0; i < 4; i++)
        if (fds[i] > 0)
            close(fds[i]);
    *n = (struct namespace){0};
}
