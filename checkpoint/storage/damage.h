// Why a checkpoint cannot be used: it is damaged, it cannot be read, or this process has no more descriptors or memory.
// No LibTorch.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace ddp::storage {

/// From the least to the worst.
enum class FailureKind : char {
  kNone,
  kError,       ///< none of those below
  kDamaged,     ///< the checkpoint is not what was written
  kUnreadable,  ///< the checkpoint may be whole, but the system gives an error instead of its bytes
  kShortage,    ///< the process or the machine has no more descriptors or memory: another checkpoint fails as well
};

/// Why something failed; false when it did not.
struct Failure {
  FailureKind kind = FailureKind::kNone;
  std::string text{};

  explicit operator bool() const { return kind != FailureKind::kNone; }
  bool operator==(const Failure&) const = default;
  /// Adds one: the worse kind, and both texts.
  Failure& operator+=(const Failure& other);
};

/// A checkpoint that cannot be trusted; the message names folder and reason.
class DamagedCheckpoint : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One that may be whole: the system gives an error instead of its bytes.
class UnreadableCheckpoint : public DamagedCheckpoint {
 public:
  using DamagedCheckpoint::DamagedCheckpoint;
};

/// Whether the error is that the process or the machine has no more descriptors or memory. It says nothing of the file,
/// and the next one would meet it as well.
bool is_resource_shortage(const std::error_code& error);

/// What `error` says, with its kind.
Failure failure_from(const DamagedCheckpoint& error);

/// Throws DamagedCheckpoint for `folder`.
[[noreturn]] void throw_damaged(const std::filesystem::path& folder, const std::string& reason);

/// What an `error` while `folder` was read means: throws DamagedCheckpoint where a file is missing or something else is
/// in its place, `error` itself where it is a shortage, and UnreadableCheckpoint for all else.
[[noreturn]] void throw_read_failure(const std::filesystem::path& folder, const std::system_error& error);

}  // namespace ddp::storage
