// The error file of the process that started ddprun (TORCHELASTIC_ERROR_FILE in ddprun's environment), which TorchX and
// Kubeflow read. It receives the error file of the rank that failed first, in the form of torchrun's error handler.
#pragma once

#include <string>

#include "launcher/plan/outcome/job_end.h"

namespace launcher {

// The text for a rank that left `text` in its error file: the same JSON with the member errorCode, which is the exit
// status or minus the signal. A message that is plain text remains unchanged. Text that is not JSON becomes the
// message. Pure.
std::string parent_error_text(const std::string& text, const RankEnd& rank);

// Copies the rank's error file `source` to `target`; does nothing when the rank wrote none. Returns a problem as one
// line, else "".
std::string pass_on_error_file(const std::string& source, const std::string& target, const RankEnd& rank);

// The path in ddprun's own environment; empty if no error file was requested.
std::string parent_error_file();

// Writes an error of ddprun itself to that file; prints a line if that fails.
void record_own_error(const std::string& message);

}  // namespace launcher
