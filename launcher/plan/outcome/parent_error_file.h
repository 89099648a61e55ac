// The error file of the process that started ddprun (TORCHELASTIC_ERROR_FILE in ddprun's own environment), which TorchX
// and Kubeflow read: it receives the error file of the rank that failed first, as torchrun's error handler writes it.
#pragma once

#include <string>

#include "launcher/plan/outcome/job_end.h"

namespace launcher {

// What is written for a rank that left `text` in its error file: the same JSON with the member errorCode, the exit
// status or minus the signal. A message that is plain text stays as it is. Text that is not JSON becomes the message.
// Pure.
std::string parent_error_text(const std::string& text, const RankEnd& rank);

// Copies the rank's error file `source` to `target`; nothing happens when the rank wrote none. Returns what went wrong
// in one line, else "".
std::string pass_on_error_file(const std::string& source, const std::string& target, const RankEnd& rank);

// The path in ddprun's own environment; empty if no error file was requested.
std::string parent_error_file();

// Writes an error of ddprun itself there; where that fails it prints a line.
void record_own_error(const std::string& message);

}  // namespace launcher
