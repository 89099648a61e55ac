// Reports of uncaught exceptions and fatal signals. Does not use LibTorch.
#pragma once

namespace ddp {

/// Installs handlers for uncaught exceptions (std::terminate) and for the signals SEGV, BUS, FPE, ILL and ABRT. A
/// handler prints rank, message and stack to standard error, and writes them with the time to the launcher's error
/// file, as JSON that torchrun and ddprun read. The file is written under a temporary name and then renamed. A file
/// that exists already (see report()) is kept. Afterwards the previous handler or the default action runs, so exit
/// status and core dump are unchanged.
///
/// init_process_group() calls it; call it yourself as the first line of main to cover what comes before. Without
/// TORCHELASTIC_ERROR_FILE, and from the second call on, it does nothing. Processes that this one forks report nothing.
/// A stack overflow is reported only for the thread that called this function, because an alternate signal stack
/// belongs to one thread.
void install_failure_handlers();

}  // namespace ddp
