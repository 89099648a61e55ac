#include "launcher/local/output/rank_streams.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// How often ddprun checks the disk to which the ranks write their log files themselves.
constexpr auto kDiskInterval = 1s;
// How often ddprun checks whether to continue to wait for a reader.
constexpr auto kTickInterval = 50ms;

void check_descriptors(const Options& options) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::size_t needed = needed_descriptors(options);
  if (needed <= limit.rlim_cur) return;
  const std::string ranks = std::to_string(options.nproc_per_node) + (options.nproc_per_node == 1 ? " rank" : " ranks");
  throw LaunchError(ranks + " with these outputs need " + std::to_string(needed) + " open files, but the limit is " +
                    std::to_string(limit.rlim_cur) +
                    ": raise it (ulimit -Hn), or use --redirects instead of --tee, or --no_prefix");
}

void check_input_rank(const Options& options, int world_size) {
  const StandardInput& input = options.standard_input;
  if (input.to != StandardInput::To::kRank || input.rank < world_size) return;
  throw LaunchError("--stdin " + std::to_string(input.rank) + ": there is no such rank, the last is " +
                    std::to_string(world_size - 1));
}

bool needs_relay(const Options& options) {
  for (int local_rank = 0; local_rank < options.nproc_per_node; ++local_rank) {
    for (const Stream stream : {Stream::kOutput, Stream::kError}) {
      if (planned_route(options, local_rank, stream).to == StreamRoute::To::kRelay) return true;
    }
  }
  return false;
}

std::string temporary_folder() {
  const char* folder = std::getenv("TMPDIR");
  return folder != nullptr && *folder != '\0' ? folder : "/tmp";
}

}  // namespace

RankStreams::RankStreams(EventLoop& loop, const Options& options, const std::string& run_id, std::string error_folder,
                         int typed, pid_t own_group)
    : loop_(loop),
      options_(options),
      terminal_input_fd_(typed),
      null_(::open("/dev/null", O_RDWR | O_CLOEXEC)),
      own_messages_(loop) {
  if (options_.nnodes == 1) check_input_rank(options_, options_.nproc_per_node);
  check_descriptors(options_);
  layout_.error_folder = std::move(error_folder);
  if (needs_log_folder(options_)) {
    const bool is_ours = options_.log_folder.empty();  // other programs may use the folder, too
    const std::string parent = is_ours ? temporary_folder() : options_.log_folder;
    const char* option = is_ours ? "TMPDIR" : "--log_dir";
    if (!is_ours) make_folder(parent, option);
    // The ranks may change their working directory before they write their error files, so the path must be absolute.
    layout_.log_folder =
        std::filesystem::absolute(make_unique_folder(parent, is_ours ? "ddprun_logs_" + run_id : run_id, option));
  }
  if (!options_.output_folder.empty()) {
    make_folder(options_.output_folder, "--output_filename");
    layout_.output_folder = options_.output_folder;
  }
  for (const std::string& folder : {layout_.log_folder, layout_.output_folder}) {
    if (folder.empty()) continue;
    if (const int error = no_space_error(folder); error != 0) {
      remove_unused_folder();
      throw LaunchError("no log file can be written in " + folder + ": " + error_text(error));
    }
  }
  if (needs_relay(options_)) {
    const bool single_rank =
        options_.console_ranks.size() == 1 || (options_.nproc_per_node == 1 && options_.nnodes == 1);
    relay_.emplace(loop_, prefix_template(std::getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")), single_rank,
                   own_group);
  }
  if (!layout_.log_folder.empty()) messages().print("log files: " + layout_.log_folder);
}

// Removes the log folder of a job that was refused, if it is empty.
void RankStreams::remove_unused_folder() const {
  if (!layout_.log_folder.empty()) ::rmdir(layout_.log_folder.c_str());
}

RankStreams::~RankStreams() {
  remove_unused_folder();
}

PrefixTemplate RankStreams::prefix_template(const char* torchruns) const {
  if (!has_prefixes(options_)) return PrefixTemplate("");
  if (options_.prefix) return PrefixTemplate(*options_.prefix);
  if (!options_.line_prefix_template.empty()) {
    return PrefixTemplate::from_torchrun(options_.line_prefix_template, options_.role);
  }
  if (torchruns != nullptr && *torchruns != '\0') return PrefixTemplate::from_torchrun(torchruns, options_.role);
  return PrefixTemplate(PrefixTemplate::kDefault);
}

Messages& RankStreams::messages() {
  if (relay_) return *relay_;
  return own_messages_;
}

void RankStreams::begin_attempt(int attempt, int world_size) {
  attempt_ = attempt;
  world_size_ = world_size;
  check_input_rank(options_, world_size);
  if (options_.standard_input.to == StandardInput::To::kAll && !copies_) {
    copies_.emplace(loop_, terminal_input_fd_ >= 0 ? terminal_input_fd_ : STDIN_FILENO);
  }
  if (relay_) relay_->forget_ended_streams();
  if (layout_.log_folder.empty()) return;
  make_folder(layout_.attempt_folder(attempt_), "--log_dir");
  const auto make_filter = [this](Stream stream, const std::vector<std::string>& texts) {
    if (texts.empty()) return std::shared_ptr<LineFilter>();
    const std::string path = layout_.filtered_file(attempt_, stream);
    return std::make_shared<LineFilter>(texts, LogFile(path, open_log_file(path, false)));
  };
  output_filter_ = make_filter(Stream::kOutput, options_.output_filters);
  error_filter_ = make_filter(Stream::kError, options_.error_filters);
}

RankDescriptors RankStreams::add_rank(const RankPlace& place) {
  if (!layout_.log_folder.empty()) make_folder(layout_.rank_folder(attempt_, place), "--log_dir");
  if (!layout_.output_folder.empty()) make_folder(layout_.output_rank_folder(place), "--output_filename");
  RankDescriptors descriptors;
  descriptors.input = open_input(place, descriptors.owned[0]);
  descriptors.output = open_stream(place, Stream::kOutput, descriptors.owned[1]);
  descriptors.error = open_stream(place, Stream::kError, descriptors.owned[2]);
  return descriptors;
}

int RankStreams::open_input(const RankPlace& place, UniqueFd& owned) {
  switch (options_.standard_input.to) {
    case StandardInput::To::kAll:
      owned = copies_->add_reader();
      return owned.get();
    case StandardInput::To::kRank:
      return place.rank == options_.standard_input.rank ? terminal_input_fd_ : null_.get();
    case StandardInput::To::kNone:
      break;
  }
  return null_.get();
}

int RankStreams::open_stream(const RankPlace& place, Stream stream, UniqueFd& owned) {
  const StreamRoute route = route_stream(options_, layout_, attempt_, place, stream);
  const bool keep = !layout_.output_folder.empty() && attempt_ > 0;  // one file for all attempts
  switch (route.to) {
    case StreamRoute::To::kConsole:
      return -1;
    case StreamRoute::To::kNothing:
      return null_.get();
    case StreamRoute::To::kFile:
      owned = open_log_file(route.file, keep);
      watched_folder_ = layout_.output_folder.empty() ? layout_.log_folder : layout_.output_folder;
      break;
    case StreamRoute::To::kRelay: {
      OutputRelay::StreamRequest request{.place = place, .stream = stream, .is_shown = route.is_shown};
      if (!route.file.empty()) request.copy = LogFile(route.file, open_log_file(route.file, keep));
      request.filter = stream == Stream::kOutput ? output_filter_ : error_filter_;
      owned = relay_->add_stream(std::move(request));
      break;
    }
  }
  return owned.get();
}

void RankStreams::all_added() {
  if (relay_) relay_->start_reading();
  if (copies_) copies_->begin();
  if (!watched_folder_.empty()) watch_disk();
}

// A rank's write() reports that the disk is full, but many programs ignore its result. So ddprun checks, too.
void RankStreams::watch_disk() {
  if (is_disk_full(watched_folder_)) note_full_disk(no_space_error(watched_folder_));
  disk_timer_.start_in(kDiskInterval, [this] { watch_disk(); });
}

void RankStreams::note_full_disk(int error) {
  if (error == 0 || !problem_.empty()) return;
  problem_ = "output was lost: the ranks cannot write to " + watched_folder_ + ": " + error_text(error);
  messages().print(problem_);
}

void RankStreams::finish_attempt(const std::function<bool()>& give_up) {
  disk_timer_.cancel();
  if (!watched_folder_.empty()) note_full_disk(no_space_error(watched_folder_));
  if (copies_) copies_->close_readers();
  tick();
  if (relay_) {
    relay_->finish(give_up);
  } else if (const std::size_t dropped = own_messages_.finish(give_up); dropped > 0 && problem_.empty()) {
    problem_ = "output was lost: " + std::to_string(dropped) + " bytes of ddprun's own lines were dropped";
  }
  tick_timer_.cancel();
}

// Wakes up the event loop regularly, so that the callers that wait can check their condition.
void RankStreams::tick() {
  tick_timer_.start_in(kTickInterval, [this] { tick(); });
}

EventLoop::Clock::time_point RankStreams::last_progress() const {
  return relay_ ? relay_->last_progress() : own_messages_.last_progress();
}

void RankStreams::describe(JobEnd& end) const {
  for (RankEnd& rank : end.ranks) {
    if (!rank.failed()) continue;
    const RankPlace place{.rank = rank.rank, .local_rank = rank.local_rank, .world_size = world_size_};
    const StreamRoute route = route_stream(options_, layout_, attempt_, place, Stream::kError);
    rank.log_file = route.file;
    if (route.to == StreamRoute::To::kRelay) rank.last_lines = relay_->last_error_lines(rank.local_rank);
    if (route.to == StreamRoute::To::kFile) rank.last_lines = last_lines_of_file(route.file);
  }
}

std::string RankStreams::problem() const {
  return problem_.empty() && relay_ ? relay_->problem() : problem_;
}

void RankStreams::update_window_sizes() {
  if (relay_) relay_->update_window_sizes();
}

void RankStreams::suspend_display(bool suspended) {
  if (relay_) relay_->suspend_display(suspended);
}

}  // namespace launcher
