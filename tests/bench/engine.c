// A fake OpenAI engine with little overhead: one thread, epoll, keep-alive, streams at the pace in the request.
//
//     engine PORT
//
// A POST with "stream":true gets max_tokens chunks in vLLM's shape, one write each, stamped T=<CLOCK_MONOTONIC in
// nanoseconds, hex>, so that a client on this machine can measure its delay; any other POST gets a unary response.
// Settings in the prompt:
//     pace=spread:20000   a chunk every 20 ms, each stream at a random phase
//     pace=tick:20000     all streams in phase, like the steps of a real engine
//     cut=5               the connection is closed after 5 chunks
// With "continuous_usage_stats" each chunk carries usage, so a number in it rises.
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
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define SLOT 250000ull  // nanoseconds; the resolution of the wheel and of the pace
#define SLOTS 4096
#define EVENT "data: {\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\"," \
              "\"created\":1700000000,\"model\":\"m\",\"choices\":["
#define USAGE "\"usage\":{\"prompt_tokens\":20,\"total_tokens\":%d,\"completion_tokens\":%d}"

struct buffer {
    char *data;
    size_t size, room;
};

struct connection {
    int socket;
    struct buffer in, out;
    int tokens, sent, cut;            // of the open stream; tokens is 0 without one
    bool numbered;                    // each of its chunks carries usage
    uint64_t pace, due;               // nanoseconds
    struct connection *next, **link;  // in its slot of the wheel
};

static struct connection *wheel[SLOTS];
static uint64_t turned;  // the last slot that has run

static uint64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void grow(struct buffer *buffer, size_t more) {
    while (buffer->size + more > buffer->room) {
        buffer->room = buffer->room ? buffer->room * 2 : 4096;
        buffer->data = realloc(buffer->data, buffer->room);
    }
}

static void append(struct buffer *buffer, const char *data, size_t size) {
    grow(buffer, size);
    memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
}

static void drop(struct buffer *buffer, size_t size) {
    if (buffer->size -= size) memmove(buffer->data, buffer->data + size, buffer->size);
}

static void schedule(struct connection *c) {
    uint64_t slot = c->due / SLOT > turned ? c->due / SLOT : turned + 1;
    c->link = &wheel[slot % SLOTS];
    c->next = *c->link;
    if (c->next) c->next->link = &c->next;
    *c->link = c;
}

static void end(struct connection *c) {
    if (c->link) *c->link = c->next;
    if (c->link && c->next) c->next->link = c->link;
    close(c->socket);
    free(c->in.data);
    free(c->out.data);
    free(c);
}

static void frame(struct connection *c, const char *event, int size) {
    char head[16];
    append(&c->out, head, snprintf(head, sizeof head, "%x\r\n", size));
    append(&c->out, event, size);
    append(&c->out, "\r\n", 2);
}

static void token(struct connection *c) {
    char event[500], usage[100] = "";
    if (c->numbered) sprintf(usage, "," USAGE, c->sent + 21, c->sent + 1);
    if (c->sent++ == 0)
        frame(c, event, sprintf(event, EVENT "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                                             "\"logprobs\":null,\"finish_reason\":null}]}\n\n"));
    frame(c, event, sprintf(event, EVENT "{\"index\":0,\"delta\":{\"content\":\"T=%016lx\"},\"logprobs\":null,"
                                         "\"finish_reason\":%s}]%s}\n\n",
                            (unsigned long)nanoseconds(), c->sent == c->tokens ? "\"length\"" : "null", usage));
    if (c->sent < c->tokens) return;
    frame(c, event, sprintf(event, EVENT "]," USAGE "}\n\n", c->tokens + 20, c->tokens));
    frame(c, "data: [DONE]\n\n", 14);
    append(&c->out, "0\r\n\r\n", 5);
}

static void respond(struct connection *c, const char *status, const char *type, const char *body) {
    char head[256];
    int size = sprintf(head, "HTTP/1.1 %s\r\nserver: uvicorn\r\ncontent-length: %zu\r\ncontent-type: %s\r\n\r\n",
                       status, strlen(body), type);
    append(&c->out, head, size);
    append(&c->out, body, strlen(body));
}

static void page(struct connection *c, const char *target) {
    if (!strncmp(target, "/v1/models ", 11))
        respond(c, "200 OK", "application/json",
               "{\"object\":\"list\",\"data\":["
               "{\"id\":\"m\",\"object\":\"model\",\"created\":1,\"owned_by\":\"vllm\"}]}");
    else if (!strncmp(target, "/version ", 9))
        respond(c, "200 OK", "application/json", "{\"version\":\"0.25.0\"}");
    else if (!strncmp(target, "/metrics ", 9))
        respond(c, "200 OK", "text/plain; version=0.0.4",
               "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"m\"} 1\n"
               "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 0\n"
               "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.5\n");
    else if (!strncmp(target, "/health ", 8))
        respond(c, "200 OK", "text/plain", "");
    else
        respond(c, "404 Not Found", "application/json", "{\"detail\":\"Not Found\"}");
}

static const char *after(const char *text, const char *word) {  // a proxy may re-encode the body with spaces
    const char *found = strstr(text, word);
    return found ? found + strlen(word) + strspn(found + strlen(word), " :") : NULL;
}

static void completion(struct connection *c, const char *body) {
    const char *stream = after(body, "\"stream\""), *most = after(body, "\"max_tokens\"");
    if (!most) most = after(body, "\"max_completion_tokens\"");
    if (!stream || *stream != 't') {
        respond(c, "200 OK", "application/json",
               "{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion\",\"created\":1700000000,"
               "\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
               "\"content\":\"Hello! How can I help you today?\"},\"logprobs\":null,\"finish_reason\":\"stop\"}],"
               "\"usage\":{\"prompt_tokens\":20,\"total_tokens\":29,\"completion_tokens\":9}}");
        return;
    }
    const char *spread = after(body, "pace=spread"), *tick = after(body, "pace=tick"), *cut = after(body, "cut=");
    const char *head = "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                       "transfer-encoding: chunked\r\n\r\n";
    append(&c->out, head, strlen(head));
    c->tokens = most && atoi(most) > 0 ? atoi(most) : 16;
    c->sent = 0;
    c->cut = cut ? atoi(cut) : 0;
    c->numbered = after(body, "\"continuous_usage_stats\"");
    c->pace = 1000ull * (spread ? atoi(spread) : tick ? atoi(tick) : 20000);
    c->due = nanoseconds();
    c->due -= tick ? c->due % c->pace : (uint64_t)(drand48() * c->pace);
    token(c);
}

// Sends without blocking; the rest stays in the buffer. False: the peer has disconnected.
static bool flush(struct connection *c) {
    ssize_t sent = c->out.size ? send(c->socket, c->out.data, c->out.size, MSG_NOSIGNAL) : 0;
    if (sent < 0) return errno == EAGAIN;
    drop(&c->out, sent);
    return true;
}

// Continues the stream or handles the next complete request. False: the connection has ended.
static bool proceed(struct connection *c) {
    for (;;) {
        if (c->tokens && (c->sent == c->cut && c->cut)) return flush(c), false;
        if (c->tokens && c->sent < c->tokens) {
            c->due += c->pace;
            schedule(c);
            return flush(c);
        }
        c->tokens = 0;
        grow(&c->in, 1);
        c->in.data[c->in.size] = 0;
        char *head_end = strstr(c->in.data, "\r\n\r\n");
        if (!head_end) return flush(c);
        head_end[2] = 0;
        char *length = strcasestr(c->in.data, "\r\ncontent-length:");
        size_t whole = head_end + 4 - c->in.data + (length ? strtoul(length + 17, NULL, 10) : 0);
        head_end[2] = '\r';
        if (c->in.size < whole) return flush(c);
        char next = c->in.data[whole];
        c->in.data[whole] = 0;
        if (!strncmp(c->in.data, "GET ", 4)) page(c, c->in.data + 4);
        else completion(c, head_end + 4);
        c->in.data[whole] = next;
        drop(&c->in, whole);
    }
}

static bool receive(struct connection *c) {
    for (;;) {
        grow(&c->in, 4096);
        size_t room = c->in.room - c->in.size - 1;  // one byte for the terminating zero
        ssize_t got = recv(c->socket, c->in.data + c->in.size, room, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN)) return false;
        if (got > 0) c->in.size += got;
        if (got < (ssize_t)room) return c->link ? true : proceed(c);  // the wheel continues a stream
    }
}

static void turn(void) {
    for (uint64_t now = nanoseconds() / SLOT; turned < now;) {
        struct connection *c = wheel[++turned % SLOTS], *next;
        wheel[turned % SLOTS] = NULL;
        for (; c; c = next) {
            next = c->next;
            c->link = NULL;
            if (c->due / SLOT > turned) schedule(c);  // due in a later turn of the wheel
            else if (token(c), !proceed(c)) end(c);
        }
    }
}

static void accept_all(int epoll, int listening) {
    for (int one = 1, socket; (socket = accept4(listening, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
        setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct connection *c = calloc(1, sizeof *c);
        c->socket = socket;
        struct epoll_event all = {EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.ptr = c}};
        epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &all);
    }
}

int main(int count, char **words) {
    if (count != 2) return fprintf(stderr, "usage: engine PORT\n"), 2;
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1, epoll = epoll_create1(0);
    struct sockaddr_in address = {AF_INET, htons(atoi(words[1])), {htonl(INADDR_LOOPBACK)}, {0}};
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(listening, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);  // several engines share a port
    if (bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 4096))
        return perror("engine"), 1;
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    timerfd_settime(timer, 0, &(struct itimerspec){{0, SLOT}, {0, SLOT}}, NULL);
    epoll_ctl(epoll, EPOLL_CTL_ADD, listening, &(struct epoll_event){EPOLLIN, {.ptr = &listening}});
    epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &(struct epoll_event){EPOLLIN, {.ptr = &timer}});
    turned = nanoseconds() / SLOT;
    for (;;) {
        struct epoll_event ready[256];
        int n = epoll_wait(epoll, ready, 256, -1);
        uint64_t expired;
        for (int i = 0; i < n; i++) {
            struct connection *c = ready[i].data.ptr;
            if (ready[i].data.ptr == &listening) accept_all(epoll, listening);
            else if (ready[i].data.ptr == &timer) (void)!read(timer, &expired, sizeof expired);
            else if (ready[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR) || !flush(c) || !receive(c)) end(c);
        }
        turn();  // only here, because it may free connections with pending events
    }
}
