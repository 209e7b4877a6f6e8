/* Types of elements. */
#ifndef ELEMENTS_H
#define ELEMENTS_H

#include <stdint.h>

/* Integers wrap; they are unsigned here, so that C says so too. */
typedef float f32;
typedef uint32_t i32;
typedef uint16_t i16;
typedef uint8_t i8;

#endif
