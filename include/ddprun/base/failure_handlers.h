// What is reported of a failure that nothing catches. No LibTorch here.
#pragma once

namespace ddp {

/// Has an uncaught exception (std::terminate) and a fatal signal (SEGV, BUS, FPE, ILL, ABRT) of this process print
/// rank, message and stack to standard error and write them, with the time, to the launcher's error file: JSON as
/// torchrun and ddprun read it, under a temporary name and then renamed. A file that is there already (report()) is
/// kept. Afterwards the previous handler or the default action follows, so exit status and core dump stay what they
/// were.
///
/// init_process_group() calls it; call it yourself as the first line of main to cover what comes before. Without
/// TORCHELASTIC_ERROR_FILE, and from the second call on, it does nothing. Processes that this one forks are left out. A
/// stack overflow is reported in the calling thread only, as a signal stack belongs to one thread.
void install_failure_handlers();

}  // namespace ddp
