// A load client with little overhead: one thread, epoll, keep-alive; each connection sends its next request when a
// response ends.
//
//     client port=P connections=N seconds=S [warmup=S] [tokens=N pace=MICROSECONDS tick=0|1 cut=N numbered=0|1]
//            [prompt=BYTES] [think=MICROSECONDS] [requests=N]
//
// With tokens it requests streams (see engine.c), else unary responses; numbered asks for usage in each chunk. The prompt
// has at least this many bytes. Connections start at random times in the first
// half of the warm-up; think is the mean pause between requests. Only the measured seconds are counted, but all errors.
// It prints `begin` and `end` at the start and end of the measurement, then one line of JSON; times are in microseconds.
// It ends after requests=N requests or on SIGTERM.
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct line {  // longer lines are truncated, as only their start is needed
    char text[512];
    int size;
};

struct connection {
    int socket;
    enum { CLOSED, CONNECTING, IDLE, HEAD, BODY, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER } state;
    uint64_t start, asked, last;  // nanoseconds: of the next request or 0, of this request, of its last stamped chunk
    struct line framing, payload;
    size_t left;  // bytes of the body or the chunk
    int status, stamped;
    bool chunked, done;
};

struct samples {
    double *value;
    size_t size, room;
};

static double port, connections, seconds, warmup, tokens, pace = 20000, tick, cut, numbered, prompt, think, limit;
static const struct { const char *name; double *value; } flags[] = {
    {"port", &port}, {"connections", &connections}, {"seconds", &seconds}, {"warmup", &warmup}, {"tokens", &tokens},
    {"pace", &pace}, {"tick", &tick}, {"cut", &cut}, {"numbered", &numbered},
    {"prompt", &prompt}, {"think", &think}, {"requests", &limit},
};
static struct samples delay, gap, first, whole;
static uint64_t now, measured_from, measured_until;
static long asked, ended, requests, chunks, merged, errors, cut_short, waiting;
static char request[65536];
static int request_size, epoll;
static volatile sig_atomic_t stopped;

static void stop(int signal) { stopped = signal; }

static uint64_t nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static bool measuring(void) { return now >= measured_from && now < measured_until; }

static void note(struct samples *samples, uint64_t took) {
    if (samples->size == samples->room) {
        samples->room = samples->room ? samples->room * 2 : 4096;
        samples->value = realloc(samples->value, samples->room * sizeof(double));
    }
    samples->value[samples->size++] = took / 1e3;
}

static void ask_at(struct connection *c, uint64_t at) {
    waiting += !c->start;
    c->start = at;
}

static void disconnect(struct connection *c, uint64_t pause) {
    close(c->socket);
    c->state = CLOSED;
    ask_at(c, now + pause);
}

static void fail(struct connection *c) {
    errors++;
    ended++;
    disconnect(c, 10000000);  // a pause, so that a proxy that refuses connections is not flooded
}

static void ask(struct connection *c) {
    if (c->state == CLOSED) {
        int one = 1;
        struct sockaddr_in address = {AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {0}};
        c->socket = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        c->state = CONNECTING;
        (void)!connect(c->socket, (struct sockaddr *)&address, sizeof address);  // epoll reports the result
        struct epoll_event all = {EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.ptr = c}};
        epoll_ctl(epoll, EPOLL_CTL_ADD, c->socket, &all);
        return;
    }
    c->state = IDLE;
    if (limit && asked >= limit) return;
    asked++;
    c->asked = nanoseconds();
    c->state = HEAD;
    c->framing.size = c->payload.size = c->status = c->stamped = 0;
    c->left = 0;
    c->chunked = c->done = false;
    if (send(c->socket, request, request_size, MSG_NOSIGNAL) != request_size) fail(c);
}

static void finish(struct connection *c) {
    c->state = IDLE;
    if (c->status != 200) return fail(c);
    ended++;
    if (tokens && (c->stamped != tokens || !c->done)) cut_short++;
    else if (measuring()) requests++, note(&whole, now - c->asked);
    if (think) ask_at(c, now + think * 2e3 * drand48());
    else ask(c);
}

static void lose(struct connection *c) {
    if (c->state == IDLE) return disconnect(c, 0);  // a proxy may close an idle connection
    if (c->state == CONNECTING) asked++;
    if (c->status != 200) return fail(c);
    cut_short++;
    ended++;
    disconnect(c, 10000000);
}

// Takes bytes up to the end of the line; true when the line is complete.
static bool take(struct line *line, const char **at, const char *end) {
    const char *stop = memchr(*at, '\n', end - *at);
    size_t size = (stop ? stop : end) - *at, room = sizeof line->text - 1 - line->size;
    memcpy(line->text + line->size, *at, size < room ? size : room);
    line->size += size < room ? size : room;
    *at += size + (stop != NULL);
    if (!stop) return false;
    if (line->size && line->text[line->size - 1] == '\r') line->size--;
    line->text[line->size] = 0;
    line->size = 0;
    return true;
}

static void head_line(struct connection *c) {
    char *line = c->framing.text;
    if (!c->status) c->status = strlen(line) > 9 ? atoi(line + 9) : 599;
    else if (!strncasecmp(line, "content-length:", 15)) c->left = strtoul(line + 15, NULL, 10);
    else if (!strncasecmp(line, "transfer-encoding:", 18)) c->chunked = strcasestr(line, "chunked");
    else if (!*line && c->chunked) c->state = CHUNK_SIZE;
    else if (!*line && c->left) c->state = BODY;
    else if (!*line) finish(c);
}

static void payload(struct connection *c, const char *at, const char *end) {
    while (take(&c->payload, &at, end)) {
        char *stamp = strstr(c->payload.text, "\"T=");
        if (!strcmp(c->payload.text, "data: [DONE]")) c->done = true;
        if (!stamp) continue;
        if (measuring()) {
            chunks++;
            merged += c->stamped && c->last == now;  // in one read with the previous chunk
            note(&delay, now - strtoull(stamp + 3, NULL, 16));
            if (c->stamped) note(&gap, now - c->last);
            else note(&first, now - c->asked);
        }
        c->last = now;
        c->stamped++;
    }
}

static void consume(struct connection *c, const char *at, const char *end) {
    while (at < end) {
        size_t piece = c->left < (size_t)(end - at) ? c->left : (size_t)(end - at);
        switch (c->state) {
        case HEAD: if (take(&c->framing, &at, end)) head_line(c); break;
        case BODY: at += piece; if (!(c->left -= piece)) finish(c); break;
        case CHUNK_SIZE:
            if (!take(&c->framing, &at, end)) break;
            c->left = strtoul(c->framing.text, NULL, 16);
            c->state = c->left ? CHUNK : TRAILER;
            break;
        case CHUNK:
            payload(c, at, at + piece);
            at += piece;
            if (!(c->left -= piece)) c->state = CHUNK_END;
            break;
        case CHUNK_END: if (take(&c->framing, &at, end)) c->state = CHUNK_SIZE; break;
        case TRAILER: if (take(&c->framing, &at, end) && !*c->framing.text) finish(c); break;
        case CLOSED: return;
        default: return fail(c);  // unexpected bytes
        }
    }
}

static void handle(struct connection *c, uint32_t events) {
    static char bytes[1 << 16];
    if (c->state == CONNECTING && !(events & (EPOLLERR | EPOLLHUP))) ask(c);
    while (c->state != CLOSED) {
        ssize_t got = recv(c->socket, bytes, sizeof bytes, 0);
        if (got < 0 && errno == EAGAIN) return;
        now = nanoseconds();
        if (got <= 0) return lose(c);
        consume(c, bytes, bytes + got);
        if (got < (ssize_t)sizeof bytes && !(events & EPOLLRDHUP)) return;  // edge-triggered: all bytes were read
    }
}

static int ascending(const void *a, const void *b) {
    return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b);
}

static void report(const char *name, struct samples *samples) {
    printf(", \"%s\": {\"count\": %zu", name, samples->size);
    if (samples->size) qsort(samples->value, samples->size, sizeof(double), ascending);
    for (int i = 0; i < 4 && samples->size; i++)
        printf(", \"%s\": %.1f", (const char *[]){"p50", "p90", "p99", "max"}[i],
               samples->value[(size_t)((samples->size - 1) * (double[]){0.5, 0.9, 0.99, 1}[i])]);
    printf("}");
}

// False: an unknown flag.
static bool read_flag(const char *word) {
    size_t size = strcspn(word, "=");
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (word[size] && strlen(flags[i].name) == size && !strncmp(word, flags[i].name, size))
            return *flags[i].value = atof(word + size + 1), true;
    return false;
}

static void write_request(void) {
    static char body[sizeof request - 512], padding[sizeof body - 512];
    char stream[120] = "";
    if (tokens) sprintf(stream, ",\"stream\":true,\"stream_options\":{\"include_usage\":true%s}",
                        numbered ? ",\"continuous_usage_stats\":true" : "");
    memset(padding, 'a', prompt < sizeof padding - 1 ? prompt : sizeof padding - 1);
    int size = sprintf(body,
                       "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a story of a proxy "
                       "that never slept. pace=%s:%.0f; cut=%.0f. %s\"}],\"max_tokens\":%.0f%s}",
                       tick ? "tick" : "spread", pace, cut, padding, tokens ? tokens : 16, stream);
    request_size = sprintf(request,
                           "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:%.0f\r\n"
                           "authorization: Bearer sk-bench\r\ncontent-type: application/json\r\n"
                           "content-length: %d\r\n\r\n%s", port, size, body);
}

int main(int count, char **words) {
    for (int i = 1; i < count; i++)
        if (!read_flag(words[i])) return fprintf(stderr, "client: unknown flag %s\n", words[i]), 2;
    write_request();
    signal(SIGTERM, stop);
    epoll = epoll_create1(0);
    struct connection *all = calloc(connections, sizeof *all);
    now = nanoseconds();
    measured_from = now + warmup * 1e9;
    measured_until = measured_from + seconds * 1e9;
    for (int i = 0; i < connections; i++) ask_at(&all[i], now + warmup / 2 * 1e9 * drand48());
    for (bool begun = false; !stopped && now < measured_until && !(limit && ended >= limit); now = nanoseconds()) {
        if (!begun && now >= measured_from) begun = puts("begin") >= 0 && !fflush(stdout);
        for (struct connection *c = all; waiting && c < all + (int)connections; c++)
            if (c->start && c->start <= now) c->start = 0, waiting--, ask(c);
        struct epoll_event ready[256];
        int n = epoll_wait(epoll, ready, 256, 1);
        for (int i = 0; i < n; i++) handle(ready[i].data.ptr, ready[i].events);
    }
    puts("end");
    fflush(stdout);
    long open = 0;
    for (int i = 0; i < connections; i++) open += all[i].state > IDLE;
    printf("{\"seconds\": %.6f, \"requests\": %ld, \"chunks\": %ld, \"merged\": %ld, \"errors\": %ld, "
           "\"short\": %ld, \"open\": %ld",
           (now - measured_from) / 1e9, requests, chunks, merged, errors, cut_short, open);
    report("delay", &delay);
    report("gap", &gap);
    report("ttft", &first);
    report("duration", &whole);
    puts("}");
}
