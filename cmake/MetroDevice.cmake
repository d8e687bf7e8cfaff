# Where kernels run. METRO_DEVICE=none: on the CPU, by whatever backend Kokkos has. METRO_DEVICE=cuda: on NVIDIA GPUs, by a
# Kokkos with CUDA. Then CMake's CUDA language compiles the units that include Kokkos, and the C++ compiler all others:
# of nvcc's restrictions and of its time each unit pays only what it must.
if(NOT METRO_DEVICE MATCHES "^(none|cuda)$")
  message(FATAL_ERROR "METRO_DEVICE=${METRO_DEVICE}: must be none or cuda")
endif()

# metro_units_with_kokkos(file...): source files of the calling folder that include Kokkos.
function(metro_units_with_kokkos)
  if(METRO_DEVICE STREQUAL "cuda")
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CUDA)
  endif()
endfunction()

# Bits as on a host: no multiply-add that the source does not spell out, subnormal numbers, IEEE division and root.
set(METRO_CUDA_OPTIONS -std=c++20 --extended-lambda --expt-relaxed-constexpr --fmad=false --ftz=false
  --prec-div=true --prec-sqrt=true)

if(METRO_DEVICE STREQUAL "none")
  if(Kokkos_ENABLE_CUDA)
    message(FATAL_ERROR "The Kokkos in ${Kokkos_DIR} has CUDA as its default: build with METRO_DEVICE=cuda (preset "
      "gpu-release), or set Kokkos_ROOT to another Kokkos")
  endif()
  return()
endif()

set(metro_oldest_cuda 12.5)  # the first with cublasGemmGroupedBatchedEx
set(metro_hint "see docs/gpu.md")

if(NOT Kokkos_ENABLE_CUDA)
  message(FATAL_ERROR "METRO_DEVICE=cuda needs a Kokkos that was built with Kokkos_ENABLE_CUDA=ON; found was "
    "Kokkos ${METRO_KOKKOS_VERSION} without. Set Kokkos_ROOT to the folder where one is installed; ${metro_hint}")
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  # What the Kokkos was built for: its kernels are templates, compiled here, but its library is not.
  set(CMAKE_CUDA_ARCHITECTURES ${Kokkos_CUDA_ARCHITECTURES})
endif()

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "METRO_DEVICE=cuda needs nvcc: put the bin folder of the CUDA toolkit on PATH, or set "
    "CMAKE_CUDA_COMPILER; ${metro_hint}")
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # as NCCL and Kokkos: a process has one CUDA runtime
enable_language(CUDA)
find_package(CUDAToolkit QUIET)
if(NOT CUDAToolkit_FOUND OR CUDAToolkit_VERSION VERSION_LESS metro_oldest_cuda)
  message(FATAL_ERROR "METRO_DEVICE=cuda needs the CUDA toolkit ${metro_oldest_cuda} or newer; "
    "found was \"${CUDAToolkit_VERSION}\"; ${metro_hint}")
endif()
if(NOT TARGET CUDA::cublas)
  message(FATAL_ERROR "METRO_DEVICE=cuda needs cuBLAS: the CUDA toolkit in ${CUDAToolkit_LIBRARY_DIR} has none; "
    "${metro_hint}")
endif()
find_package(NCCL QUIET)
if(NOT NCCL_FOUND)
  message(FATAL_ERROR "METRO_DEVICE=cuda needs NCCL (nccl.h and libnccl): install it from NVIDIA, or set NCCL_ROOT; "
    "${metro_hint}")
endif()

# Kokkos gives who links it options for its own compiler script, and a C++ standard for CUDA that CMake 3.25 does not know
# how to ask for. Ours are below.
foreach(target Kokkos::kokkos Kokkos::kokkoscore Kokkos::kokkoscontainers Kokkos::kokkosalgorithms Kokkos::kokkossimd)
  if(TARGET ${target})
    set_target_properties(${target} PROPERTIES INTERFACE_COMPILE_OPTIONS "" INTERFACE_COMPILE_FEATURES ""
      INTERFACE_LINK_OPTIONS "")
  endif()
endforeach()

if(METRO_WERROR)
  list(APPEND METRO_CUDA_OPTIONS --Werror=all-warnings)
endif()
