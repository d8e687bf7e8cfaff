// How a function is marked that runs on the host and on a device, without Kokkos: for arithmetic that units need which
// a C++ compiler compiles, and that nvcc compiles on its own.
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__)
#define METRO_HOST_DEVICE __host__ __device__ inline
#define METRO_HOST_DEVICE_FORCE_INLINE __host__ __device__ __forceinline__
#elif defined(__GNUC__)
#define METRO_HOST_DEVICE inline
#define METRO_HOST_DEVICE_FORCE_INLINE inline __attribute__((always_inline))
#else
#define METRO_HOST_DEVICE inline
#define METRO_HOST_DEVICE_FORCE_INLINE inline
#endif
