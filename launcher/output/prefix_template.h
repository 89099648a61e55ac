// The text in front of each line of a rank: a template with {rank}, {local_rank}, {host}, {stream} and {time}. Pure.
#pragma once

#include <string>
#include <string_view>

#include "launcher/worker_environment.h"

namespace launcher {

class PrefixTemplate {
 public:
  static constexpr std::string_view kDefault = "[{rank}] ";

  // `text` is a template, or "horovod" for its form `[1,RANK]<STREAM>:`. Throws LaunchError naming an unknown field.
  explicit PrefixTemplate(std::string_view text);

  bool has_time() const;
  // `stream`: "stdout" or "stderr"; `time` as it is to appear.
  std::string expand(const RankPlace& place, std::string_view host, std::string_view stream,
                     std::string_view time) const;

 private:
  std::string text_;
};

}  // namespace launcher
