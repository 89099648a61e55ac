// What an error of the system says of a checkpoint, by its number.
#include "checkpoint/storage/damage.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "tests/support/catch.h"

namespace ddp::storage {
namespace {

// The type and the message of what `error` becomes.
std::pair<std::string, std::string> failure_for(int error) {
  try {
    throw_read_failure("run/step-1", std::system_error(error, std::generic_category(), "cannot open run/step-1/x"));
  } catch (const UnreadableCheckpoint& thrown) {
    return {"unreadable", thrown.what()};
  } catch (const DamagedCheckpoint& thrown) {
    return {"damaged", thrown.what()};
  } catch (const std::system_error& thrown) {
    CHECK(thrown.code() == std::error_code(error, std::generic_category()));
    return {"shortage", thrown.what()};
  }
}

TEST_CASE("Damage: an error is of the checkpoint, of the disk or of the process, and keeps its words") {
  struct Case {
    int error;
    const char* kind;
    const char* begin;
  };
  const auto [error, kind, begin] = GENERATE(values<Case>({
      {ENOENT, "damaged", "the checkpoint run/step-1 is damaged: "},
      {ENOTDIR, "damaged", "the checkpoint run/step-1 is damaged: "},
      {ELOOP, "damaged", "the checkpoint run/step-1 is damaged: "},
      {EISDIR, "damaged", "the checkpoint run/step-1 is damaged: "},
      {EINVAL, "damaged", "the checkpoint run/step-1 is damaged: "},
      {EIO, "unreadable", "the checkpoint run/step-1 cannot be read: "},
      {EACCES, "unreadable", "the checkpoint run/step-1 cannot be read: "},
      {EPERM, "unreadable", "the checkpoint run/step-1 cannot be read: "},
      {ESTALE, "unreadable", "the checkpoint run/step-1 cannot be read: "},
      {ETIMEDOUT, "unreadable", "the checkpoint run/step-1 cannot be read: "},
      {EMFILE, "shortage", ""},
      {ENFILE, "shortage", ""},
      {ENOMEM, "shortage", ""},
  }));
  const auto [thrown, message] = failure_for(error);
  CAPTURE(std::strerror(error));
  CHECK(thrown == kind);
  CHECK(message == std::string(begin) + "cannot open run/step-1/x: " + std::strerror(error));
  CHECK(is_resource_shortage(std::error_code(error, std::system_category())) == (thrown == "shortage"));
}

TEST_CASE("Damage: no error is not a shortage") {
  CHECK_FALSE(is_resource_shortage({}));
  CHECK_FALSE(is_resource_shortage(std::make_error_code(std::errc::no_space_on_device)));
  CHECK_THROWS_WITH(throw_damaged("a/b", "why"), "the checkpoint a/b is damaged: why");
}

}  // namespace
}  // namespace ddp::storage
