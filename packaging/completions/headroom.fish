# fish completion of headroom(1).
function __headroom_needs_command
    set -l words (commandline -opc)
    for word in $words[2..]
        string match -q -- '-*' $word; or return 1
    end
    return 0
end
function __headroom_uses
    set -l words (commandline -opc)
    contains -- $words[2] $argv
end

complete -c headroom -f
complete -c headroom -n __headroom_needs_command -a run -d 'Run a build in a lane of its own'
complete -c headroom -n __headroom_needs_command -a env -d 'Print the environment for builds of this shell'
complete -c headroom -n __headroom_needs_command -a status -d 'Show memory, tokens, lanes and jobs'
complete -c headroom -n __headroom_needs_command -a top -d 'The same, over and over'
complete -c headroom -n __headroom_needs_command -a explain -d 'Tell the last decisions, each with its reason'
complete -c headroom -n __headroom_needs_command -a doctor -d 'Say what keeps builds from being fast and safe'
complete -c headroom -n __headroom_needs_command -a history -d 'What builds have taught: list, show, export, import, forget'
complete -c headroom -n __headroom_needs_command -a plan -d 'What a build would do on another machine'
complete -c headroom -n __headroom_needs_command -a set -d 'Change a running lane or the daemon'
complete -c headroom -n __headroom_needs_command -a reload -d 'Let the daemon read its configuration again'
complete -c headroom -n __headroom_needs_command -l version -d 'Say the version'
complete -c headroom -l help -d 'Say how it is used'
complete -c headroom -n '__headroom_uses run set' -l jobs -x -d 'Most jobs at once'
complete -c headroom -n '__headroom_uses run set' -l reserve -x -d 'Memory that is never planned with'
complete -c headroom -n '__headroom_uses run env' -l no-gate -d 'Hold no compilers at their start'
complete -c headroom -n '__headroom_uses run' -l no-history -d 'Plan as if for the first time'
complete -c headroom -n '__headroom_uses history' -a 'list show export import forget'
complete -c headroom -n '__headroom_uses history' -l all -d 'Forget everything'
complete -c headroom -n '__headroom_uses run' -l trace -r -F -d 'Save the trace to a file'
complete -c headroom -n '__headroom_uses run' -l curves -r -F -d 'Save the memory curves to a file'
complete -c headroom -n '__headroom_uses run' -a '(__fish_complete_subcommand --fcs-skip=2)'
complete -c headroom -n '__headroom_uses env' -l format -x -a 'sh fish systemd docker' -d 'Of what is printed'
complete -c headroom -n '__headroom_uses env' -l unset -d 'Print what takes it back'
complete -c headroom -n '__headroom_uses status explain doctor history plan' -l json -d 'For programs'
complete -c headroom -n '__headroom_uses status' -l watch -d 'Again and again'
complete -c headroom -n '__headroom_uses status top' -l interval -x -d 'Milliseconds between two looks'
complete -c headroom -n '__headroom_uses plan' -l cores -x -d 'Of the machine'
complete -c headroom -n '__headroom_uses plan' -l mem -x -d 'Its memory, GB'
complete -c headroom -n '__headroom_uses plan' -l archs -x -d 'That nvcc builds for'
complete -c headroom -n '__headroom_uses plan' -l threads -x -d 'nvcc --threads'
complete -c headroom -n '__headroom_uses plan' -F
complete -c headroom -n '__headroom_uses explain' -l last -x -d 'How many'
complete -c headroom -n '__headroom_uses explain set' -l lane -x -d 'Number or name, see status'
