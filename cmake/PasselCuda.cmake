# PasselCuda.cmake - decides whether the GPU plugin is built, and for which architectures.
#
# Sets PASSEL_CUDA_BUILT (ON or OFF), PASSEL_CUDA_WHY_NOT (one clause, when OFF) and
# PASSEL_CUDA_GENCODE (options of nvcc); then the language CUDA is enabled. A machine without nvcc
# never sees that language.

set(PASSEL_CUDA AUTO CACHE STRING "Build the GPU plugin: AUTO (where nvcc 12.4 or newer is), ON, OFF")
set_property(CACHE PASSEL_CUDA PROPERTY STRINGS AUTO ON OFF)
set(PASSEL_CUDA_ARCHS all CACHE STRING
    "GPU architectures: all, or a list such as 80;90 or 90;120-virtual")

# ABI and flags of the host code are those of g++ 12; nvcc's own newest is not asked for.
set(PASSEL_CUDA_MIN_NVCC 12.4)

# passel_cuda_architectures(out version): the list that `all` means for this nvcc.
function(passel_cuda_architectures out version)
  # PTX of 9.0, so that a GPU between those named (11.0) compiles it for itself, and of the newest for
  # what comes later. 9.0 has the vector additions, which PTX of an older one would leave out.
  set(archs 75 80 86 89 90 90-virtual)
  if(version VERSION_GREATER_EQUAL 12.8)
    list(APPEND archs 100 120 120-virtual)
  endif()
  set(${out} ${archs} PARENT_SCOPE)
endfunction()

function(passel_find_cuda)
  set(PASSEL_CUDA_BUILT OFF PARENT_SCOPE)
  string(TOUPPER "${PASSEL_CUDA}" wanted)
  if(NOT wanted MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "PASSEL_CUDA is '${PASSEL_CUDA}', but it is AUTO, ON or OFF")
  endif()
  set(why "")
  if(wanted STREQUAL "OFF")
    set(why "PASSEL_CUDA is OFF")
  elseif(PASSEL_SANITIZE)
    set(why "sanitizers judge host code alone: the kernels run in the tests' emulator instead")
  else()
    find_program(PASSEL_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda
                 PATH_SUFFIXES bin DOC "The CUDA compiler")
    mark_as_advanced(PASSEL_NVCC)
    if(NOT PASSEL_NVCC)
      set(why "nvcc is not installed (looked in PATH, $CUDA_HOME/bin and /usr/local/cuda/bin)")
    else()
      execute_process(COMMAND ${PASSEL_NVCC} --version OUTPUT_VARIABLE text ERROR_VARIABLE text
                      RESULT_VARIABLE failed)
      if(failed OR NOT text MATCHES "release ([0-9]+\\.[0-9]+)")
        set(why "${PASSEL_NVCC} --version does not say which release it is")
      elseif(CMAKE_MATCH_1 VERSION_LESS PASSEL_CUDA_MIN_NVCC)
        set(why "${PASSEL_NVCC} is of CUDA ${CMAKE_MATCH_1}, but ${PASSEL_CUDA_MIN_NVCC} or newer is needed")
      else()
        set(version ${CMAKE_MATCH_1})
        # CMAKE_CXX_COMPILER may be clang, which not every nvcc takes: a g++ is what nvcc gets.
        find_program(PASSEL_CUDA_HOST_COMPILER NAMES g++-12 g++ DOC "g++ for the host code of nvcc")
        mark_as_advanced(PASSEL_CUDA_HOST_COMPILER)
        if(NOT PASSEL_CUDA_HOST_COMPILER)
          set(why "nvcc needs g++ 12 for its host code, and there is none")
        endif()
      endif()
    endif()
  endif()
  if(why)
    if(wanted STREQUAL "ON")
      message(FATAL_ERROR "PASSEL_CUDA is ON, but the GPU plugin cannot be built: ${why}")
    endif()
    message(STATUS "GPU plugin: not built: ${why}")
    set(PASSEL_CUDA_WHY_NOT "${why}" PARENT_SCOPE)
    return()
  endif()

  if(PASSEL_CUDA_ARCHS STREQUAL "all")
    passel_cuda_architectures(archs ${version})
  else()
    set(archs ${PASSEL_CUDA_ARCHS})
  endif()
  set(gencode "")
  foreach(arch IN LISTS archs)
    if(NOT arch MATCHES "^([0-9]+)(-real|-virtual)?$" OR CMAKE_MATCH_1 LESS 75)
      message(FATAL_ERROR "PASSEL_CUDA_ARCHS holds '${arch}', but it is 'all' or a list of numbers "
                          "from 75, each with -real, -virtual or nothing behind it")
    endif()
    set(number ${CMAKE_MATCH_1})
    if(CMAKE_MATCH_2 STREQUAL "-virtual")
      list(APPEND gencode "--generate-code=arch=compute_${number},code=compute_${number}")
    else()
      list(APPEND gencode "--generate-code=arch=compute_${number},code=sm_${number}")
    endif()
  endforeach()
  message(STATUS "GPU plugin: CUDA ${version}, architectures ${archs}")
  set(PASSEL_CUDA_GENCODE ${gencode} PARENT_SCOPE)
  set(PASSEL_CUDA_ARCH_LIST ${archs} PARENT_SCOPE)
  set(PASSEL_CUDA_BUILT ON PARENT_SCOPE)
endfunction()

passel_find_cuda()
if(PASSEL_CUDA_BUILT)
  set(CMAKE_CUDA_COMPILER ${PASSEL_NVCC})
  set(CMAKE_CUDA_HOST_COMPILER ${PASSEL_CUDA_HOST_COMPILER})
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # ours, by PASSEL_CUDA_GENCODE
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc takes C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  # -fmad=false: products and sums of the optimizer's formulas round as on the CPU; where one
  # rounding is wanted, kernels say FusedMultiplyAdd().
  set(PASSEL_CUDA_COMPILE_FLAGS -fmad=false -O3 -lineinfo --Werror=all-warnings
      -Xcompiler=-Wall,-Wextra,-Wshadow)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  find_library(PASSEL_CUDART_STATIC cudart_static HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES}
               REQUIRED)
  find_path(PASSEL_CUDA_INCLUDE cuda_runtime_api.h
            HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} REQUIRED)
  # cublasLt.h comes with another package of the toolkit. Nothing links the library.
  find_path(PASSEL_CUBLASLT_INCLUDE cublasLt.h
            HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} REQUIRED)
  mark_as_advanced(PASSEL_CUDART_STATIC PASSEL_CUDA_INCLUDE PASSEL_CUBLASLT_INCLUDE)
endif()
