# bash completion of headroom(1) and headroomd(8).
_headroom() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command= i
  local commands='run env status top explain doctor history plan set reload'
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${COMP_WORDS[i]} != -* ]]; then
      command=${COMP_WORDS[i]}
      break
    fi
  done
  COMPREPLY=()
  if [[ -z $command ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands --help --version" -- "$cur")
    return
  fi
  if [[ $command == run ]]; then
    # Behind the options of run is a command with completions of its own.
    local j=$((i + 1))
    while ((j < COMP_CWORD)); do
      case ${COMP_WORDS[j]} in
        --) ((++j)); break ;;
        --jobs | --reserve | --trace | --curves) ((j += 2)) ;;
        -*) ((++j)) ;;
        *) break ;;
      esac
    done
    if ((j < COMP_CWORD)); then
      if declare -F _command_offset >/dev/null; then
        _command_offset "$j"
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      fi
      return
    fi
    if ((j == COMP_CWORD)) && [[ ${COMP_WORDS[j - 1]} == -- || $cur != -* ]]; then
      mapfile -t COMPREPLY < <(compgen -c -- "$cur")
      return
    fi
  fi
  case $prev in
    --trace | --curves)
      mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      return
      ;;
    --format)
      mapfile -t COMPREPLY < <(compgen -W 'sh fish systemd docker' -- "$cur")
      return
      ;;
    --jobs | --reserve | --interval | --last | --lane) return ;;
  esac
  local options=--help
  case $command in
    run) options+=' --jobs --reserve --no-gate --no-history --trace --curves --' ;;
    env) options+=' --format --no-gate --unset' ;;
    status) options+=' --json --watch --interval' ;;
    top) options+=' --interval' ;;
    explain) options+=' --last --lane --json' ;;
    doctor) options+=' --json' ;;
    plan) options='--cores --mem --archs --threads --json --help' ;;
    history) options='list show export import forget --all --json --help' ;;
    set) options+=' --lane --jobs --reserve' ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
}
complete -F _headroom headroom

_headroomd() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
  case $prev in
    --config) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    --runtime-dir | --state-dir) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    *)
      mapfile -t COMPREPLY < <(compgen -W '--config --check-config --runtime-dir --state-dir
        --private --foreground --help --version' -- "$cur")
      ;;
  esac
}
complete -F _headroomd headroomd
