# What the compiler and the linker add against attacks on memory (docs/security.md 1, tests/structure/hardened.sh).
# None of these flags changes a floating-point result. A flag that this compiler does not know is left out.
add_library(hardened INTERFACE)
set(HARDENING_WITHOUT "" CACHE STRING "flags to leave out, or all, to measure what they cost (tests/bench/hardening.py)")
if(HARDENING_WITHOUT STREQUAL "all")
    return()
endif()
include(CheckCCompilerFlag)
include(CheckCSourceCompiles)

# For all code. The last two: a check that the source makes is not taken away because the standard says that what it checks
# cannot happen.
set(HARDENING -fstack-protector-strong -fstack-clash-protection -Werror=format-security -fno-delete-null-pointer-checks)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND HARDENING -fcf-protection=full)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    list(APPEND HARDENING -mbranch-protection=standard)
endif()
if(NOT SAN) # UBSan looks for the overflows that this one defines
    list(APPEND HARDENING -fno-strict-overflow)
endif()
list(REMOVE_ITEM HARDENING ${HARDENING_WITHOUT})
foreach(flag ${HARDENING})
    string(MAKE_C_IDENTIFIER "HAVE${flag}" known)
    set(CMAKE_REQUIRED_FLAGS "-Werror -Wformat") # format-security is a part of it
    check_c_compiler_flag(${flag} ${known})
    unset(CMAKE_REQUIRED_FLAGS)
    if(${known})
        target_compile_options(hardened INTERFACE ${flag})
    endif()
endforeach()

# Checked copies and prints of the C library: level 3 also sees sizes that are known at run time only. Not with sanitizers, which
# check the same calls, and not without optimisation, which the library refuses.
if(NOT SAN)
    set(CMAKE_REQUIRED_FLAGS "-O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -Werror")
    check_c_source_compiles("#include <stdio.h>
        #if __USE_FORTIFY_LEVEL < 3
        #error level 3 is not there
        #endif
        int main(void) { return 0; }" HAVE_FORTIFY_3)
    unset(CMAKE_REQUIRED_FLAGS)
    set(FORTIFY_LEVEL 2)
    if(HAVE_FORTIFY_3)
        set(FORTIFY_LEVEL 3)
    endif()
    target_compile_options(hardened INTERFACE
        $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=${FORTIFY_LEVEL}>)
endif()

# Addresses of the program are drawn at each start (PIE), its tables of functions are filled in at once and then read-only, its
# stack is not executable. Not `-z nodlopen`: the GPU's modules are opened.
target_link_options(hardened INTERFACE $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-pie>
    LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
