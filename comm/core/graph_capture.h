// Internal: CUDA graphs. While a stream is being captured nothing runs, so the host can neither read a result nor wait;
// CUDA's own errors name neither the call nor what to do. No LibTorch here: the CUDA part supplies the answer.
#pragma once

#include <string>

namespace ddp::detail {

/// Whether the calling thread's current CUDA stream is being captured.
using CaptureProbe = bool (*)();

/// Makes `probe` the one that is asked; null: nothing is ever captured. Set when the CUDA part is loaded. Returns the
/// one before.
CaptureProbe set_capture_probe(CaptureProbe probe);

/// True while the calling thread's current stream is being captured into a CUDA graph. Some nanoseconds where CUDA is
/// not in use.
bool is_capturing();

/// While capturing: throws std::runtime_error "<what> cannot be captured in a CUDA graph: <why, and what to do>".
void refuse_capture(const std::string& what, const std::string& why);

}  // namespace ddp::detail
