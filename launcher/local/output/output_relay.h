// Passes the ranks' standard output and error on to ddprun's own, whole lines at a time, each after its rank's prefix
// (at a terminal unfinished ones too: LiveDisplay), and to log files, byte for byte. A slow reader slows the ranks down
// instead of filling memory.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/local/output/log_file.h"
#include "launcher/local/output/output_tail.h"
#include "launcher/local/output/prefix_template.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"
#include "launcher/os/system/parked_descriptors.h"
#include "launcher/os/system/stream_writer.h"
#include "launcher/os/system/unique_fd.h"
#include "launcher/os/terminal/character_width.h"
#include "launcher/os/terminal/line_prefixer.h"
#include "launcher/os/terminal/live_display.h"
#include "launcher/plan/stream_selection.h"
#include "launcher/plan/worker_environment.h"

namespace launcher {

class OutputRelay : public Messages {
 public:
  // `single_rank`: a single rank is shown, so its lines need no prefix to identify it. Without a prefix its bytes are
  // passed on unchanged, including prompts. `own_group`: ddprun's process group as the terminal has it.
  OutputRelay(EventLoop& loop, PrefixTemplate prefix, bool single_rank, pid_t own_group);
  ~OutputRelay() override;
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

  struct StreamRequest {
    RankPlace place{};
    Stream stream = Stream::kOutput;
    bool is_shown = true;                          // on ddprun's own output
    std::optional<LogFile> copy = std::nullopt;    // gets every byte
    std::shared_ptr<LineFilter> filter = nullptr;  // gets every line
  };
  // Returns the descriptor to which a rank writes: a pseudo-terminal when the stream is shown on a terminal, else a
  // pipe. Close it in this process once the rank has been started, so that the end of its output can be detected.
  UniqueFd add_stream(StreamRequest request);
  // Begins to read. Call it when all ranks have been added and forked.
  void start_reading();
  // Returns the last lines that the rank has written to standard error since it was added.
  std::string last_error_lines(int local_rank) const;
  // Removes the streams that have ended, and their last lines.
  void forget_ended_streams();
  void update_window_sizes();
  void suspend_display(bool suspended);

  void print(std::string_view line) override;
  void print_lines(std::string_view lines) override;

  // To be called when no process can write any more. Reads the remaining output, and returns when all is written, when
  // the reader has closed, or when `give_up` returns true. From then on the rest goes only to the log files, and its
  // bytes are counted.
  void finish(const std::function<bool()>& give_up);
  EventLoop::Clock::time_point last_progress() const;
  // The first problem with ddprun's own output or with a log file; empty when everything was written. A reader that
  // closed its end is not an error.
  const std::string& problem() const { return problem_; }

 private:
  struct Source {
    int number = 0;
    StreamRequest request{};
    UniqueFd fd{};
    LinePrefixer lines{""};
    StreamWriter* to = nullptr;  // null: not shown
    std::unique_ptr<LiveStream>
        live{};  // for a stream that is shown on a terminal; null: the bytes go directly to the writer
    std::size_t prefix_columns = 0;
    bool is_raw = false;  // passed on without a search for lines
    bool is_terminal = false;
    OutputTail tail{};
    bool watched = false;
  };

  // Returns the other stream of the same rank on the same terminal, or null.
  Source* other_stream_on_terminal(const Source& source) const;
  void read_in_order(Source& source);
  // Returns false when there is nothing to read now.
  bool read(Source& source);
  void pass_on(Source& source, std::string_view bytes);
  void set_prefix(Source& source);
  UniqueFd open_ends(Source& source, int shown_on);
  std::vector<ShownRow> rows_of(const LiveDisplay* display, std::size_t columns) const;
  LiveDisplay* display_of(Stream stream) const;
  void print_text(std::string_view text);
  void watch(Source& source, bool on);
  void end(Source& source);
  void on_space_available();
  void log_remaining_output();
  void note_problem(const std::string& text);
  void note_log_problem(const LogFile& file);

  EventLoop& loop_;
  PrefixTemplate prefix_;
  bool single_rank_;
  std::string host_;
  std::unique_ptr<StreamWriter> output_;
  std::unique_ptr<StreamWriter> error_output_;  // null when both go to the same file: then one writer keeps lines whole
  StreamWriter* error_;
  CharacterWidth widths_;
  std::optional<StandardDisplays> displays_;
  std::vector<std::unique_ptr<Source>> sources_;
  ParkedDescriptors parked_;
  int next_number_ = 0;
  std::unique_ptr<char[]> scratch_;     // not touched before the first read, so that fork() has less to copy
  std::string unshown_lines_;           // of a source that is not shown but filtered
  std::optional<std::size_t> unshown_;  // number of bytes that arrived after output was no longer shown
  std::string problem_;
};

}  // namespace launcher
