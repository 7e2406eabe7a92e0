/* The other side of the MQTT benchmarks, faster than any client in Python. MQTT 3.1.1 and 5.0, loopback only.
 *
 *   mqtt_peer serve                                       prints its port; answers, and sends what is subscribed to:
 *                                                         the filter blast/COUNT/SIZE brings COUNT messages of SIZE,
 *                                                         100 of them unanswered, whatever the Receive Maximum
 *   mqtt_peer publish PORT TOPIC COUNT SIZE QOS WINDOW    prints the seconds until the last answer
 *   mqtt_peer subscribe PORT FILTER COUNT QOS             prints "ready", then how many came, and the seconds from the
 *                                                         first to the last; ends early when none comes for 3 s
 *   mqtt_peer hold PORT COUNT                             prints "held" when COUNT connections are accepted
 *
 * serve and hold end with their standard input. QoS 0 has no answer: publish ends with a marker of QoS 1 behind it.
 * All roles are one loop: what comes in is answered, and messages go out while the window has room. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECT = 1, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK,
       PINGREQ, PINGRESP, DISCONNECT };
enum { IN = 256 << 10, OUT = 1 << 20, FULL = 256 << 10 };

struct peer {
    int fd, level, closed, accepted, subscribed, marker_sent;
    uint8_t in[IN], out[OUT];
    size_t have, start, end;
    /* what this side sends */
    uint8_t *packet;
    size_t length, id_at;
    int qos;
    unsigned inflight, window;
    uint16_t next_id;
    uint64_t left, completed;
    /* what it gets */
    uint64_t received, wanted;
    int patience; /* ms without a message; -1: no end */
    double first, last;
};

static void fail(const char *what) {
    fprintf(stderr, "mqtt_peer: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void put(struct peer *p, const void *bytes, size_t size) {
    if (p->end + size > OUT) {
        memmove(p->out, p->out + p->start, p->end - p->start);
        p->end -= p->start;
        p->start = 0;
    }
    if (p->end + size > OUT) { errno = ENOBUFS; fail("a full output buffer"); }
    memcpy(p->out + p->end, bytes, size);
    p->end += size;
}

/* A packet that is an identifier and nothing else. */
static void answer(struct peer *p, int kind, uint16_t id) {
    uint8_t bytes[4] = {kind << 4 | (kind == PUBREL ? 2 : 0), 2, id >> 8, id};
    put(p, bytes, 4);
}

static size_t put_length(uint8_t *at, size_t value) {
    size_t used = 0;
    do {
        at[used++] = (value & 127) | (value > 127 ? 128 : 0);
        value >>= 7;
    } while (value);
    return used;
}

/* Makes the PUBLISH that is sent again and again, but for its identifier. */
static void prepare(struct peer *p, const char *topic, size_t topic_length, uint64_t count, size_t size, int qos,
                    unsigned window) {
    uint8_t *at = p->packet = realloc(p->packet, size + topic_length + 16);
    size_t body = 2 + topic_length + (qos ? 2 : 0) + (p->level == 5) + size;
    *at++ = PUBLISH << 4 | qos << 1;
    at += put_length(at, body);
    *at++ = topic_length >> 8;
    *at++ = topic_length;
    memcpy(at, topic, topic_length);
    at += topic_length;
    p->id_at = at - p->packet;
    if (qos) at += 2;
    if (p->level == 5) *at++ = 0;
    memset(at, 'x', size);
    p->length = at + size - p->packet;
    p->qos = qos, p->left = count, p->window = window;
}

static void fill(struct peer *p) {
    while (p->left && p->end - p->start < FULL && (!p->qos || p->inflight < p->window)) {
        if (p->qos) {
            if (!++p->next_id) p->next_id = 1;
            p->packet[p->id_at] = p->next_id >> 8;
            p->packet[p->id_at + 1] = p->next_id;
            p->inflight++;
        }
        put(p, p->packet, p->length);
        p->left--;
    }
}

static void blast(struct peer *p, const char *filter, size_t length, int qos) {
    unsigned long long count;
    size_t size;
    char text[64];
    if (length >= sizeof text) return;
    memcpy(text, filter, length);
    text[length] = 0;
    if (sscanf(text, "blast/%llu/%zu", &count, &size) == 2) prepare(p, text, length, count, size, qos, 100);
}

/* One packet; `body` is without the fixed header. The clients are trusted, and their properties to be short. */
static void handle(struct peer *p, uint8_t first, const uint8_t *body, size_t size) {
    int kind = first >> 4, qos = first >> 1 & 3;
    uint16_t id = size >= 2 ? body[0] << 8 | body[1] : 0;
    size_t at;
    switch (kind) {
    case CONNECT:
        p->level = body[6];
        at = 10 + (p->level == 5 ? 1 + body[10] : 0);
        /* 5.0 wants a client without an identifier to be told one. */
        if (p->level != 5) put(p, "\x20\x02\0", 4);
        else if (body[at] || body[at + 1]) put(p, "\x20\x03\0\0", 5);
        else put(p, "\x20\x09\0\0\x06\x12\0\x03one", 11);
        break;
    case CONNACK:
        if (size < 2 || body[1]) { errno = ECONNREFUSED; fail("CONNACK"); }
        p->accepted = 1;
        break;
    case PUBLISH:
        if (!p->received++) p->first = now();
        at = 2 + id; /* the topic's length */
        if (qos && at + 2 <= size) answer(p, qos == 1 ? PUBACK : PUBREC, body[at] << 8 | body[at + 1]);
        break;
    case PUBREC: answer(p, PUBREL, id); break;
    case PUBREL: answer(p, PUBCOMP, id); break;
    case PUBACK:
    case PUBCOMP:
        if (p->inflight) p->inflight--;
        p->completed++;
        break;
    case SUBSCRIBE: {
        uint8_t granted[6] = {SUBACK << 4, p->level == 5 ? 4 : 3, body[0], body[1], 0, 0};
        at = 2 + (p->level == 5 ? 1 + body[2] : 0);
        size_t length = body[at] << 8 | body[at + 1];
        if (at + 3 + length > size) { errno = EPROTO; fail("SUBSCRIBE"); }
        qos = body[at + 2 + length] & 3;
        granted[p->level == 5 ? 5 : 4] = qos;
        put(p, granted, p->level == 5 ? 6 : 5);
        blast(p, (const char *)body + at + 2, length, qos);
        break;
    }
    case SUBACK: p->subscribed = 1; break;
    case UNSUBSCRIBE: {
        uint8_t bytes[6] = {UNSUBACK << 4, p->level == 5 ? 4 : 2, body[0], body[1], 0, 0};
        p->left = 0;
        put(p, bytes, p->level == 5 ? 6 : 4);
        break;
    }
    case PINGREQ: put(p, "\xd0", 2); break;
    case DISCONNECT: p->closed = 1; break;
    }
}

/* All whole packets in the input. */
static void parse(struct peer *p) {
    size_t at = 0;
    for (;;) {
        size_t body = 0, header = 1;
        int shift = 0, more = 1;
        while (more && at + header < p->have && header <= 4) {
            uint8_t byte = p->in[at + header++];
            body |= (size_t)(byte & 127) << shift;
            shift += 7;
            more = byte & 128;
        }
        if (more || at + header + body > p->have) break;
        handle(p, p->in[at], p->in + at + header, body);
        at += header + body;
    }
    if (!at && p->have == IN) { errno = EMSGSIZE; fail("a packet larger than the buffer"); }
    memmove(p->in, p->in + at, p->have - at);
    p->have -= at;
}

static int never(struct peer *p) { (void)p; return 0; }
static int accepted(struct peer *p) { return p->accepted; }
static int subscribed(struct peer *p) { return p->subscribed; }
static int all_here(struct peer *p) { return p->received >= p->wanted; }
static int all_sent(struct peer *p) {
    if (p->qos) return !p->left && !p->inflight;
    if (!p->left && !p->marker_sent) {
        static const char marker[] = "\x32\x0a\0\x04mark\0\x01\0";
        p->marker_sent = 1;
        put(p, marker, sizeof marker);
    }
    return p->completed > 0;
}

static void run(struct peer *p, int (*done)(struct peer *)) {
    while (!p->closed) {
        fill(p);
        if (done(p)) break;
        while (p->start < p->end) {
            ssize_t sent = send(p->fd, p->out + p->start, p->end - p->start, MSG_NOSIGNAL);
            if (sent < 0 && errno == EAGAIN) break;
            if (sent < 0) { p->closed = 1; return; }
            p->start += sent;
        }
        if (p->start == p->end) p->start = p->end = 0;
        struct pollfd ready = {p->fd, (p->end - p->start < FULL ? POLLIN : 0) | (p->end > p->start ? POLLOUT : 0), 0};
        /* Nothing to wait for while there is more to send than fits at once. */
        int endless = p->left && !p->qos && p->start == p->end;
        int count = poll(&ready, 1, endless ? 0 : p->patience);
        if (count < 0 && errno != EINTR) fail("poll");
        if (count == 0 && !endless) return;
        if (ready.revents & (POLLIN | POLLHUP | POLLERR)) {
            ssize_t got = recv(p->fd, p->in + p->have, IN - p->have, 0);
            if (got == 0 || (got < 0 && errno != EAGAIN)) p->closed = 1;
            if (got > 0) p->have += got, parse(p), p->last = now();
        }
    }
}

static struct peer *peer(int fd) {
    int one = 1;
    struct peer *p = calloc(1, sizeof *p);
    if (!p) fail("memory");
    p->fd = fd, p->level = 5, p->patience = -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return p;
}

static int dial(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    return fd;
}

/* CONNECT 5.0, clean start, no keep-alive, with an identifier of its own. */
static size_t hello(uint8_t *at, unsigned number) {
    char id[32];
    size_t length = snprintf(id, sizeof id, "peer-%d-%u", getpid(), number);
    uint8_t head[] = {CONNECT << 4, 13 + length, 0, 4, 'M', 'Q', 'T', 'T', 5, 2, 0, 0, 0, 0, length};
    memcpy(at, head, sizeof head);
    memcpy(at + sizeof head, id, length);
    return sizeof head + length;
}

static struct peer *client(int port) {
    struct peer *p = peer(dial(port));
    p->end = hello(p->out, 0);
    run(p, accepted);
    if (!p->accepted) { errno = ECONNRESET; fail("handshake"); }
    return p;
}

static void *serve(void *argument) {
    struct peer *p = argument;
    run(p, never);
    close(p->fd);
    free(p->packet);
    free(p);
    return NULL;
}

static void *until_input_ends(void *unused) {
    char byte;
    (void)unused;
    while (read(0, &byte, 1) > 0) {}
    exit(0);
}

static void serve_all(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    pthread_t thread;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, 64)) fail("listen");
    getsockname(fd, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    pthread_create(&thread, NULL, until_input_ends, NULL);
    for (;;) {
        int accepted = accept(fd, NULL, NULL);
        if (accepted < 0) fail("accept");
        if (pthread_create(&thread, NULL, serve, peer(accepted))) fail("thread");
        pthread_detach(thread);
    }
}

static void hold(int port, int count) {
    struct rlimit files;
    uint8_t bytes[64];
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    for (int number = 0; number < count; number++) {
        int fd = dial(port);
        size_t size = hello(bytes, number);
        if (write(fd, bytes, size) != (ssize_t)size) fail("write");
        if (read(fd, bytes, sizeof bytes) < 4 || bytes[0] != CONNACK << 4 || bytes[3]) fail("CONNACK");
    }
    puts("held");
    fflush(stdout);
    until_input_ends(NULL);
}

int main(int count, char **words) {
    const char *role = count > 1 ? words[1] : "";
    if (!strcmp(role, "serve")) serve_all();
    if (!strcmp(role, "hold") && count == 4) hold(atoi(words[2]), atoi(words[3]));
    if (!strcmp(role, "publish") && count == 8) {
        struct peer *p = client(atoi(words[2]));
        double start = now();
        prepare(p, words[3], strlen(words[3]), atoll(words[4]), atoi(words[5]), atoi(words[6]), atoi(words[7]));
        run(p, all_sent);
        if (p->closed) { errno = ECONNRESET; fail("publish"); }
        printf("%f\n", now() - start);
        return 0;
    }
    if (!strcmp(role, "subscribe") && count == 6) {
        struct peer *p = client(atoi(words[2]));
        size_t length = strlen(words[3]);
        uint8_t head[] = {SUBSCRIBE << 4 | 2, 6 + length, 0, 1, 0, 0, length}, qos = atoi(words[5]);
        p->wanted = atoll(words[4]);
        p->patience = 3000;
        put(p, head, sizeof head);
        put(p, words[3], length);
        put(p, &qos, 1);
        run(p, subscribed);
        puts("ready");
        fflush(stdout);
        run(p, all_here);
        if (p->closed) { errno = ECONNRESET; fail("subscribe"); }
        printf("%llu %f\n", (unsigned long long)p->received, p->last - p->first);
        return 0;
    }
    fputs("usage: mqtt_peer serve | publish ... | subscribe ... | hold ...\n", stderr);
    return 2;
}
