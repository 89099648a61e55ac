#include "base/job.h"

#include <charconv>
#include <optional>

namespace ddp {
namespace {

/// The place set by the innermost ThreadJob of the calling thread, or null. It is thread-local because environment
/// variables belong to the whole process; LibTorch stores the current device of a thread in the same way.
const JobPlace*& thread_place() {
  thread_local const JobPlace* place = nullptr;
  return place;
}

std::optional<int> number(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  int value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

}  // namespace

JobPlace job_of_environment(const VariableLookup& lookup) {
  const LauncherVariables* variables = launcher_variables(lookup);
  if (variables == nullptr) return {};
  const auto rank = number(lookup(variables->rank));
  const auto size = number(lookup(variables->world_size));
  if (!rank || !size || *rank < 0 || *rank >= *size) return {};
  return {.rank = *rank, .size = *size};
}

std::optional<JobPlace> thread_job() {
  const JobPlace* place = thread_place();
  return place != nullptr ? std::optional(*place) : std::nullopt;
}

JobPlace job_of_this_thread() {
  const auto job = thread_job();
  return job ? *job : job_of_environment();
}

std::string job_prefix(const JobPlace& job) {
  if (job.size == 1) return "";
  return "rank " + std::to_string(job.rank) + " of " + std::to_string(job.size) + ": ";
}

ThreadJob::ThreadJob(const JobPlace& place) : place_(place), outer_(thread_place()) {
  thread_place() = &place_;
}

ThreadJob::~ThreadJob() {
  thread_place() = outer_;
}

}  // namespace ddp
