/* Dense blocks: every packet of a block brings as many elements, and they are added one by one.
 *
 * Three designs, each a handler for each type of elements: `single_T` (one buffer a block, in a critical section), `multi_T` (some
 * buffers, whichever is free; the last handler brings them together) and `tree_T` (a buffer for each child, combined along a
 * tree that does not depend on who comes first). A child's packet counts once. */
#include "vectors.h"
#include "runtime.h"

/* The header of a packet; its elements follow. */
struct packet {
	uint32_t block;
	uint16_t child, count;
};

#define MOST_BUFFERS 4
#define LEVELS 6

struct block {
	uint32_t lock;
	uint32_t seen; /* a bit for each child whose packet has come */
	uint32_t finished; /* handlers that are through with theirs (multi) */
	uint32_t held[MOST_BUFFERS]; /* a lock for each buffer (multi) */
	uint32_t filled[MOST_BUFFERS]; /* whether something is in it (multi) */
	uint32_t ready[LEVELS]; /* a bit for each node that waits for its sibling (tree) */
};

struct job {
	uint32_t children;
	uint32_t mask; /* blocks at a time, a power of two, less one */
	uint32_t child; /* who we are to the parent */
	uint32_t destination;
	struct block *blocks;
	uint8_t *memory; /* of all buffers */
	uint32_t buffer_bytes;
	uint32_t buffers; /* of a block */
};

static inline uint32_t all_of(const struct job *job)
{
	return 0xffffffffu >> (32 - job->children);
}

static inline struct packet *buffer_of(const struct job *job, uint32_t slot, uint32_t number)
{
	return (struct packet *)(job->memory + (slot * job->buffers + number) * job->buffer_bytes);
}

static inline uint32_t bytes_of(uint32_t count, uint32_t size)
{
	return sizeof(struct packet) + count * size;
}

static inline void copy_packet(struct packet *to, const struct packet *from, uint32_t size)
{
	copy_words((uint32_t *)to, (const uint32_t *)from, (bytes_of(from->count, size) + 3) / 4);
}

static inline void publish(const struct job *job, struct packet *sum, uint32_t size)
{
	sum->child = job->child;
	send(sum, bytes_of(sum->count, size), job->destination);
}

/* True if this packet is the first of its child. */
static inline int is_new(struct block *block, const struct packet *packet)
{
	uint32_t bit = 1u << packet->child;
	lock(&block->lock);
	uint32_t seen = block->seen;
	block->seen = seen | bit;
	unlock(&block->lock);
	return !(seen & bit);
}

/* Holds a buffer that nobody else does. */
static inline uint32_t take_buffer(const struct job *job, struct block *block)
{
	for (uint32_t number = 0;; number = number + 1 == job->buffers ? 0 : number + 1)
		if (try_lock(&block->held[number]))
			return number;
}

/* True for the handler that is through last. */
static inline int is_last(const struct job *job, struct block *block)
{
	lock(&block->lock);
	uint32_t finished = ++block->finished;
	unlock(&block->lock);
	return finished == job->children;
}

/* True if the sibling has been ready before; else this node is now. */
static inline int meets(struct block *block, uint32_t level, uint32_t place)
{
	uint32_t sibling = 1u << (place ^ 1);
	lock(&block->lock);
	uint32_t ready = block->ready[level];
	block->ready[level] = ready & sibling ? ready & ~sibling : ready | 1u << place;
	unlock(&block->lock);
	return (ready & sibling) != 0;
}

#define DEFINE_HANDLERS(T)                                                                     \
	static inline void add_##T(struct packet *sum, const struct packet *packet)            \
	{                                                                                      \
		combine_##T((T *)(sum + 1), (const T *)(packet + 1), packet->count);           \
	}                                                                                      \
                                                                                               \
	void single_##T(const struct packet *packet, const struct job *job)                    \
	{                                                                                      \
		uint32_t slot = packet->block & job->mask, bit = 1u << packet->child;          \
		struct block *block = &job->blocks[slot];                                      \
		struct packet *sum = buffer_of(job, slot, 0);                                  \
		lock(&block->lock);                                                            \
		uint32_t seen = block->seen;                                                   \
		if (!(seen & bit)) {                                                           \
			if (seen)                                                              \
				add_##T(sum, packet);                                          \
			else                                                                   \
				copy_packet(sum, packet, sizeof(T));                           \
			seen |= bit;                                                           \
			if (seen == all_of(job)) {                                             \
				publish(job, sum, sizeof(T));                                  \
				seen = 0;                                                      \
			}                                                                      \
			block->seen = seen;                                                    \
		}                                                                              \
		unlock(&block->lock);                                                          \
	}                                                                                      \
                                                                                               \
	void multi_##T(const struct packet *packet, const struct job *job)                     \
	{                                                                                      \
		uint32_t slot = packet->block & job->mask;                                     \
		struct block *block = &job->blocks[slot];                                      \
		if (!is_new(block, packet))                                                    \
			return;                                                                \
		uint32_t mine = take_buffer(job, block);                                       \
		struct packet *sum = buffer_of(job, slot, mine);                               \
		if (block->filled[mine])                                                       \
			add_##T(sum, packet);                                                  \
		else                                                                           \
			copy_packet(sum, packet, sizeof(T));                                   \
		block->filled[mine] = 1;                                                       \
		unlock(&block->held[mine]);                                                    \
		if (!is_last(job, block))                                                      \
			return;                                                                \
		for (uint32_t other = 0; other < job->buffers; other++) {                      \
			if (other != mine && block->filled[other])                             \
				add_##T(sum, buffer_of(job, slot, other));                     \
			block->filled[other] = 0;                                              \
		}                                                                              \
		publish(job, sum, sizeof(T));                                                  \
		block->finished = 0;                                                           \
		block->seen = 0;                                                               \
	}                                                                                      \
                                                                                               \
	void tree_##T(const struct packet *packet, const struct job *job)                      \
	{                                                                                      \
		uint32_t slot = packet->block & job->mask, place = packet->child;              \
		struct block *block = &job->blocks[slot];                                      \
		if (!is_new(block, packet))                                                    \
			return;                                                                \
		copy_by_dma(buffer_of(job, slot, place), packet, bytes_of(packet->count, sizeof(T))); \
		uint32_t width = job->children;                                                \
		for (uint32_t level = 0; width > 1; level++) {                                 \
			/* An odd one at the end moves up as it is. A node lies where its leftmost leaf did. */ \
			if ((place ^ 1) < width) {                                             \
				if (!meets(block, level, place))                               \
					return;                                                \
				uint32_t left = (place & ~1u) << level, right = (place | 1) << level; \
				add_##T(buffer_of(job, slot, left), buffer_of(job, slot, right)); \
			}                                                                      \
			place >>= 1;                                                           \
			width = (width + 1) >> 1;                                              \
		}                                                                              \
		publish(job, buffer_of(job, slot, 0), sizeof(T));                              \
		block->seen = 0;                                                               \
	}

DEFINE_HANDLERS(f32)
DEFINE_HANDLERS(f16)
DEFINE_HANDLERS(i32)
DEFINE_HANDLERS(i16)
DEFINE_HANDLERS(i8)
