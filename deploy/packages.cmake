# What `cmake --install` puts where, and the Debian packages that `cpack -G DEB` makes of it (deploy/package.sh deb):
#   atoll         the program, its units, manual pages, completions, examples          libatoll0     the library for other trainers
#   libatoll-dev  header, pkg-config                                                   atoll-cuda    the GPU modules (-DCUDA=ON)
include(GNUInstallDirs)
set(SHARE ${CMAKE_INSTALL_DATADIR}/atoll)

install(TARGETS atoll RUNTIME COMPONENT atoll)
install(PROGRAMS deploy/renew.sh DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME atoll-renew COMPONENT atoll)
install(PROGRAMS deploy/ranks.sh DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME atoll-ranks COMPONENT atoll)
file(GLOB UNITS CONFIGURE_DEPENDS deploy/systemd/*.service deploy/systemd/*.timer)
install(FILES ${UNITS} DESTINATION lib/systemd/system COMPONENT atoll)
file(GLOB EXAMPLES CONFIGURE_DEPENDS deploy/examples/*.yaml)
install(FILES ${EXAMPLES} DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT atoll)
install(DIRECTORY deploy/grafana deploy/kubernetes deploy/slurm DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT atoll)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT atoll)
install(FILES deploy/completions/atoll.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME atoll COMPONENT atoll)
install(FILES deploy/completions/_atoll DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT atoll)
install(FILES deploy/completions/atoll.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT atoll)
# The manual pages and the schema of the configuration are printed by the program.
install(CODE "
    set(made \"${CMAKE_BINARY_DIR}/printed\")
    file(REMOVE_RECURSE \${made})
    execute_process(COMMAND \"${CMAKE_SOURCE_DIR}/deploy/manuals.sh\" \"$<TARGET_FILE:atoll>\" \${made}/man COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND \"$<TARGET_FILE:atoll>\" train --help-keys --format json-schema
        OUTPUT_FILE \${made}/config.schema.json COMMAND_ERROR_IS_FATAL ANY)
    file(GLOB pages \${made}/man/*.1)
    file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1\" TYPE FILE FILES \${pages})
    file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${SHARE}\" TYPE FILE FILES \${made}/config.schema.json)"
    COMPONENT atoll)
configure_file(outer/library/atoll.pc.in ${CMAKE_BINARY_DIR}/lib/atoll.pc @ONLY)
install(TARGETS atoll_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libatoll0 NAMELINK_COMPONENT libatoll-dev)
install(FILES outer/library/atoll.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT libatoll-dev)
install(FILES ${CMAKE_BINARY_DIR}/lib/atoll.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT libatoll-dev)
install(FILES deploy/examples/c/site.c deploy/examples/c/run.yaml deploy/examples/c/README.md
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libatoll-dev/examples COMPONENT libatoll-dev)
foreach(package libatoll0 libatoll-dev)
    install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} RENAME copyright COMPONENT ${package})
endforeach()
foreach(module atoll_cuda atoll_nccl)
    if(TARGET ${module}) # kernels/module.c looks here
        install(TARGETS ${module} LIBRARY DESTINATION lib/atoll COMPONENT atoll-cuda)
        install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/atoll-cuda RENAME copyright COMPONENT atoll-cuda)
    endif()
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME atoll)
set(CPACK_PACKAGE_VENDOR Atoll)
set(CPACK_PACKAGE_CONTACT "The Atoll developers <atoll@localhost>")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/dist)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL atoll libatoll0 libatoll-dev)
if(TARGET atoll_cuda)
    list(APPEND CPACK_COMPONENTS_ALL atoll-cuda)
endif()
# Debian's own revision of this version: the release of Debian that it was built in.
set(DEBIAN_REVISION 1 CACHE STRING "of the Debian packages, as 1~deb12")
set(CPACK_DEBIAN_PACKAGE_RELEASE ${DEBIAN_REVISION})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(EXACT "(= ${PROJECT_VERSION}-${DEBIAN_REVISION})")
# deb(COMPONENT PACKAGE DESCRIPTION): one package
macro(deb component description)
    string(TOUPPER ${component} name)
    set(CPACK_DEBIAN_${name}_PACKAGE_NAME ${component})
    set(CPACK_COMPONENT_${name}_DESCRIPTION ${description})
    set(CPACK_DEBIAN_${name}_PACKAGE_SHLIBDEPS ON)
endmacro()
deb(atoll "pre-training of language models in several datacenters
Trains GPT-, Llama- and BERT-family models data-parallel inside each datacenter, and joins the datacenters by an outer loop of
compressed updates over mutual TLS. The program, its systemd units, manual pages and examples.")
set(CPACK_DEBIAN_ATOLL_PACKAGE_RECOMMENDS "openmpi-bin, ca-certificates")
set(CPACK_DEBIAN_ATOLL_PACKAGE_SUGGESTS "atoll-cuda, openssh-client")
set(CPACK_DEBIAN_ATOLL_PACKAGE_DEPENDS "passwd")
set(CPACK_DEBIAN_ATOLL_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/deploy/debian/postinst;${CMAKE_SOURCE_DIR}/deploy/debian/prerm;${CMAKE_SOURCE_DIR}/deploy/debian/postrm)
deb(libatoll0 "the outer loop of Atoll for any trainer
The library by which a training program of your own takes part in a run of Atoll.")
deb(libatoll-dev "the outer loop of Atoll for any trainer: header
Header, pkg-config file and a C example of libatoll.")
set(CPACK_DEBIAN_LIBATOLL-DEV_PACKAGE_DEPENDS "libatoll0 ${EXACT}")
deb(atoll-cuda "GPU modules of Atoll
The kernels and the collectives that atoll opens where device.kind is cuda. The CUDA toolkit's cuBLASLt, NCCL and cuDNN are looked
for at run time.")
set(CPACK_DEBIAN_ATOLL-CUDA_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_ATOLL-CUDA_PACKAGE_DEPENDS "atoll ${EXACT}, libc6")
include(CPack)
