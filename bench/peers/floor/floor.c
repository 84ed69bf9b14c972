// The floor in C: the least that a replicated produce costs with one epoll loop a node.
//
//   floor ID NODES CLIENT_PORT PEER_PORT DIRECTORY
//
// The same as thin_floor.py, which says what it does and what it leaves out.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nmmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PARTITIONS = 12, NODES_MAX = 8, NAME_MAX_BYTES = 64, DIRTY_MAX = 4096 };
enum { PRODUCE = 0, METADATA = 3, API_VERSIONS = 18, UNSUPPORTED_VERSION = 35, EPOCH = 1 };
enum { PUSH_HEADER = 12, CRC_AT = 17, CRC_COVERS = 21, LAST_OFFSET_DELTA_AT = 23 };
enum kind { CLIENT, FOLLOWER, LEADER, CLIENT_LISTENER, PEER_LISTENER };

// A produce that is not answered yet: in a queue of its connection and in one of its partition.
typedef struct waiter {
  struct waiter *next_of_connection, *next_of_partition;
  struct connection *connection;
  int32_t correlation_id, partition;
  int64_t base_offset, end;
  int done;
  char topic[NAME_MAX_BYTES];
} waiter;

typedef struct connection {
  int fd, peer, dirty, blocked;
  enum kind kind;
  uint8_t *in, *out;
  size_t in_size, in_room, out_from, out_size, out_room;
  waiter *first, *last;
} connection;

static struct {
  int fd;
  int64_t end, position, ends[NODES_MAX];
  waiter *first, *last;
} partitions[PARTITIONS];

static int own, nodes, client_port, peer_port, poller;
static connection *peers[NODES_MAX], *dirty[DIRTY_MAX];
static int dirty_count;

static uint16_t get16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return be16toh(v); }
static uint32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return be32toh(v); }
static uint64_t get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return be64toh(v); }
static uint8_t *put16(uint8_t *p, int v) { uint16_t w = htobe16(v); memcpy(p, &w, 2); return p + 2; }
static uint8_t *put32(uint8_t *p, int32_t v) { uint32_t w = htobe32(v); memcpy(p, &w, 4); return p + 4; }
static uint8_t *put64(uint8_t *p, int64_t v) { uint64_t w = htobe64(v); memcpy(p, &w, 8); return p + 8; }

static uint8_t *put_name(uint8_t *p, const char *name) {
  size_t length = strlen(name);
  p = put16(p, length);
  memcpy(p, name, length);
  return p + length;
}

static void check(int ok, const char *what) {
  if (ok) return;
  perror(what);
  exit(1);
}

static uint32_t crc32c(const uint8_t *p, size_t size) {
  uint64_t crc = 0xffffffff;
  for (; size >= 8; p += 8, size -= 8) {
    uint64_t word;
    memcpy(&word, p, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  for (; size; size--) crc = _mm_crc32_u8(crc, *p++);
  return ~(uint32_t)crc;
}

static void append(int index, const uint8_t *batch, size_t size) {
  check(crc32c(batch + CRC_COVERS, size - CRC_COVERS) == get32(batch + CRC_AT), "crc");
  ssize_t written = pwrite(partitions[index].fd, batch, size, partitions[index].position);
  check(written == (ssize_t)size, "pwrite");
  partitions[index].position += size;
}

// Room for a frame in what is written at the end of the turn.
static uint8_t *room(connection *c, size_t size) {
  if (c->out_from == c->out_size) c->out_from = c->out_size = 0;
  if (c->out_size + size > c->out_room) {
    c->out_room = (c->out_size + size) * 2;
    c->out = realloc(c->out, c->out_room);
  }
  if (!c->dirty) {
    check(dirty_count < DIRTY_MAX, "connections");
    c->dirty = 1;
    dirty[dirty_count++] = c;
  }
  uint8_t *frame = c->out + c->out_size;
  c->out_size += size;
  return frame;
}

static void answer(connection *c) {
  while (c->first && c->first->done) {
    waiter *one = c->first;
    c->first = one->next_of_connection;
    if (!c->first) c->last = NULL;
    size_t size = 4 + 4 + 4 + 2 + strlen(one->topic) + 4 + 4 + 2 + 8 + 8 + 8 + 4;
    uint8_t *p = put32(put32(put32(room(c, size), size - 4), one->correlation_id), 1);
    p = put16(put32(put32(put_name(p, one->topic), 1), one->partition), 0);
    put32(put64(put64(put64(p, one->base_offset), -1), 0), 0);
    free(one);
  }
}

static void commit(int index) {
  int64_t committed = partitions[index].end;
  for (int peer = 0; peer < nodes; peer++)
    if (peer != own && partitions[index].ends[peer] < committed)
      committed = partitions[index].ends[peer];
  while (partitions[index].first && partitions[index].first->end <= committed) {
    waiter *one = partitions[index].first;
    partitions[index].first = one->next_of_partition;
    if (!partitions[index].first) partitions[index].last = NULL;
    one->done = 1;
    if (one->connection) answer(one->connection);
  }
}

static void produce(connection *c, int32_t correlation_id, uint8_t *p) {
  int length = (int16_t)get16(p);  // transactional id, acks, timeout, one topic
  p += 2 + (length > 0 ? length : 0) + 6;
  check(get32(p) == 1, "topics");
  length = get16(p + 4);
  check(length < NAME_MAX_BYTES, "name");
  waiter *one = calloc(1, sizeof *one);
  memcpy(one->topic, p + 6, length);
  p += 6 + length;
  check(get32(p) == 1, "partitions");
  int index = get32(p + 4), size = get32(p + 8);
  uint8_t *batch = p + 12;
  one->connection = c;
  one->correlation_id = correlation_id;
  one->partition = index;
  one->base_offset = partitions[index].end;
  put64(batch, one->base_offset);
  put32(batch + 12, EPOCH);
  append(index, batch, size);
  one->end = partitions[index].end += get32(batch + LAST_OFFSET_DELTA_AT) + 1;
  if (c->last) c->last->next_of_connection = one; else c->first = one;
  c->last = one;
  if (partitions[index].last) partitions[index].last->next_of_partition = one;
  else partitions[index].first = one;
  partitions[index].last = one;
  for (int peer = 0; peer < nodes; peer++) {
    if (peer == own) continue;
    uint8_t *push = put32(room(peers[peer], 4 + PUSH_HEADER + size), PUSH_HEADER + size);
    memcpy(put64(put32(push, index), one->end), batch, size);
  }
  if (nodes == 1) commit(index);
}

static void api_versions(connection *c, int32_t correlation_id, int version) {
  static const int known[][3] = {{0, 3, 7}, {1, 4, 4}, {2, 1, 1}, {3, 1, 1}, {18, 0, 0}};
  int count = sizeof known / sizeof *known, size = 4 + 4 + 2 + 4 + count * 6;
  uint8_t *p = put32(put32(room(c, size), size - 4), correlation_id);
  p = put32(put16(p, version ? UNSUPPORTED_VERSION : 0), count);
  for (int i = 0; i < count; i++) p = put16(put16(put16(p, known[i][0]), known[i][1]), known[i][2]);
}

// Whatever topic is asked for: node i leads partition i, i + nodes, ...
static void metadata(connection *c, int32_t correlation_id, const uint8_t *asked) {
  uint8_t frame[8192], *p = put32(put32(frame + 4, correlation_id), nodes);
  for (int node = 0; node < nodes; node++)
    p = put16(put32(put_name(put32(p, node), "127.0.0.1"), client_port + node), -1);
  p = put32(p, 0);
  if ((int32_t)get32(asked) > 0) {
    char name[NAME_MAX_BYTES] = "";
    check(get16(asked + 4) < NAME_MAX_BYTES, "name");
    memcpy(name, asked + 6, get16(asked + 4));
    p = put_name(put16(put32(p, 1), 0), name);
    *p++ = 0;
    p = put32(p, PARTITIONS);
    for (int index = 0; index < PARTITIONS; index++) {
      p = put32(put32(put16(p, 0), index), index % nodes);
      for (int list = 0; list < 2; list++) {
        p = put32(p, nodes);
        for (int node = 0; node < nodes; node++) p = put32(p, node);
      }
    }
  } else {
    p = put32(p, 0);
  }
  put32(frame, p - frame - 4);
  memcpy(room(c, p - frame), frame, p - frame);
}

static void take(connection *c, uint8_t *frame, int size) {
  if (c->kind == CLIENT) {
    int key = get16(frame), length = (int16_t)get16(frame + 8);
    int32_t correlation_id = get32(frame + 4);
    uint8_t *body = frame + 10 + (length > 0 ? length : 0);
    if (key == PRODUCE) produce(c, correlation_id, body);
    else if (key == API_VERSIONS) api_versions(c, correlation_id, get16(frame + 2));
    else if (key == METADATA) metadata(c, correlation_id, body);
    else check(0, "request");
    return;
  }
  int index = get32(frame);
  int64_t end = get64(frame + 4);
  if (c->kind == FOLLOWER) {
    append(index, frame + PUSH_HEADER, size - PUSH_HEADER);
    partitions[index].end = end;
    put64(put32(put32(room(c, 4 + PUSH_HEADER), PUSH_HEADER), index), end);
  } else {
    partitions[index].ends[c->peer] = end;
    commit(index);
  }
}

static void take_all(connection *c) {
  uint8_t *p = c->in, *end = c->in + c->in_size;
  while (end - p >= 4 && end - p >= 4 + (int)get32(p)) {
    int size = get32(p);
    take(c, p + 4, size);
    p += 4 + size;
  }
  c->in_size = end - p;
  if (c->in_size && p != c->in) memmove(c->in, p, c->in_size);
}

static void watch(connection *c, int blocked) {
  struct epoll_event event = {EPOLLIN | (blocked ? EPOLLOUT : 0), {.ptr = c}};
  c->blocked = blocked;
  epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
}

static void flush(connection *c) {
  c->dirty = 0;
  while (c->out_from < c->out_size) {
    ssize_t count = write(c->fd, c->out + c->out_from, c->out_size - c->out_from);
    if (count < 0) {
      if (errno == EAGAIN && !c->blocked) watch(c, 1);
      return;
    }
    c->out_from += count;
  }
  if (c->blocked) watch(c, 0);
}

static connection *add(int fd, enum kind kind, int peer) {
  int one = 1;
  connection *c = calloc(1, sizeof *c);
  c->fd = fd;
  c->kind = kind;
  c->peer = peer;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  fcntl(fd, F_SETFL, O_NONBLOCK);
  struct epoll_event event = {EPOLLIN, {.ptr = c}};
  epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
  return c;
}

static void drop(connection *c) {
  epoll_ctl(poller, EPOLL_CTL_DEL, c->fd, NULL);
  close(c->fd);
  for (waiter *one = c->first; one; one = one->next_of_connection) one->connection = NULL;
  c->first = c->last = NULL;
}

static struct sockaddr_in loopback(int port) {
  return (struct sockaddr_in){AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {0}};
}

static int listening(int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  struct sockaddr_in address = loopback(port);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  check(!bind(fd, (void *)&address, sizeof address) && !listen(fd, 64), "listen");
  return fd;
}

static int dialled(int port) {
  struct sockaddr_in address = loopback(port);
  for (int tries = 0; tries < 500; tries++) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (!connect(fd, (void *)&address, sizeof address)) return fd;
    close(fd);
    usleep(20000);
  }
  check(0, "connect");
  return -1;
}

static void receive(connection *c) {
  if (c->in_room - c->in_size < 65536) {
    c->in_room = c->in_room ? c->in_room * 2 : 131072;
    c->in = realloc(c->in, c->in_room);
  }
  ssize_t count = read(c->fd, c->in + c->in_size, c->in_room - c->in_size);
  if (count < 0 && errno == EAGAIN) return;
  if (count <= 0) {
    drop(c);
    return;
  }
  c->in_size += count;
  take_all(c);
}

static void turn(void) {
  struct epoll_event events[64];
  int count = epoll_wait(poller, events, 64, -1);
  for (int i = 0; i < count; i++) {
    connection *c = events[i].data.ptr;
    if (c->kind == CLIENT_LISTENER || c->kind == PEER_LISTENER) {
      int fd = accept(c->fd, NULL, NULL);
      if (fd >= 0) add(fd, c->kind == CLIENT_LISTENER ? CLIENT : FOLLOWER, -1);
      continue;
    }
    if (events[i].events & EPOLLOUT) room(c, 0);
    if (events[i].events & ~EPOLLOUT) receive(c);
  }
  for (int i = 0; i < dirty_count; i++) flush(dirty[i]);
  dirty_count = 0;
}

int main(int count, char **words) {
  check(count == 6, "usage: floor ID NODES CLIENT_PORT PEER_PORT DIRECTORY");
  own = atoi(words[1]);
  nodes = atoi(words[2]);
  client_port = atoi(words[3]);
  peer_port = atoi(words[4]);
  poller = epoll_create1(0);
  for (int index = 0; index < PARTITIONS; index++) {
    char name[512];
    snprintf(name, sizeof name, "%s/%d-%d.log", words[5], own, index);
    partitions[index].fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
  }
  add(listening(peer_port + own), PEER_LISTENER, -1);
  for (int node = 0; node < nodes; node++)
    if (node != own) peers[node] = add(dialled(peer_port + node), LEADER, node);
  add(listening(client_port + own), CLIENT_LISTENER, -1);
  for (;;) turn();
}
