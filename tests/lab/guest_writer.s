# The boot sector of guests that change their memory: 16-bit code that SeaBIOS starts at 0000:7c00 on QEMU's `pc` machine.
#
# It prints "start". With each tick of the timer (18.2 in a second) it writes to `writes` random pages of its working
# set, `pages` pages from 16 MiB on; every `beats` ticks it prints how often it has, as a line. Its power button ends it.
# Bytes of the sector that are parameters: see `parameters`.

        .set    SERIAL, 0x3f8           # first serial port; its line status is at +5
        .set    PM_STATUS, 0x600        # ACPI of the `pc` machine where SeaBIOS puts it: PM1 status, enable at +2,
        .set    PM_CONTROL, 0x604       # control
        .set    PM_BUTTON, 0x100        # power button, in status and enable
        .set    PM_OFF, 0x2000          # SLP_EN with the sleep type of S5, which is 0
        .set    TICKS, 0x46c            # of the firmware
        .set    FIRST, 0x1000000

        .code16
        .globl  _start
_start: cli
        ljmp    $0, $begin
begin:  xorw    %ax, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movw    %ax, %ss
        movw    $0x7c00, %sp
        cld
        inb     $0x92, %al              # addresses beyond 1 MiB
        orb     $2, %al
        outb    %al, $0x92
        lgdt    table
        movl    %cr0, %eax              # a segment of 4 GiB, which stays so in real mode
        orb     $1, %al
        movl    %eax, %cr0
        movw    $8, %bx
        movw    %bx, %fs
        andb    $0xfe, %al
        movl    %eax, %cr0
        xorw    %bx, %bx
        movw    %bx, %fs
        movw    $PM_STATUS + 2, %dx     # let the power button show in the status
        movw    $PM_BUTTON, %ax
        outw    %ax, %dx
        sti
        movw    $started, %si
        call    text
        xorl    %ebp, %ebp              # lines printed
line:   movl    beats, %ecx
beat:   pushl   %ecx
        movl    TICKS, %eax
1:      hlt
        cmpl    TICKS, %eax
        je      1b
        movw    $PM_STATUS, %dx
        inw     %dx, %ax
        testw   $PM_BUTTON, %ax
        jnz     off
        movl    writes, %ecx
2:      jecxz   3f
        imull   $1664525, seed, %eax
        addl    $1013904223, %eax
        movl    %eax, seed
        mull    pages
        shll    $12, %edx
        movl    seed, %eax
        addr32 movl %eax, %fs:FIRST(%edx)
        decl    %ecx
        jmp     2b
3:      popl    %ecx
        decl    %ecx
        jnz     beat
        incl    %ebp
        movl    %ebp, %eax
        call    number
        jmp     line

off:    movw    $PM_CONTROL, %dx
        movw    $PM_OFF, %ax
        outw    %ax, %dx
1:      hlt
        jmp     1b

# Prints %eax with at least four digits, and a line feed.
number: movl    $10, %ebx
        xorw    %cx, %cx
1:      xorl    %edx, %edx
        divl    %ebx
        pushw   %dx
        incw    %cx
        testl   %eax, %eax
        jnz     1b
        cmpw    $4, %cx
        jb      1b
2:      popw    %ax
        addb    $'0', %al
        call    put
        loop    2b
        movb    $'\n', %al
        call    put
        ret

# Prints the text at %si, up to its zero.
1:      call    put
text:   lodsb
        testb   %al, %al
        jnz     1b
        ret

# Prints %al once the port takes it.
put:    movb    %al, %ah
        movw    $SERIAL + 5, %dx
1:      inb     %dx, %al
        testb   $0x20, %al
        jz      1b
        movb    %ah, %al
        movw    $SERIAL, %dx
        outb    %al, %dx
        ret

started: .asciz "start\n"
        .balign 8
segments: .quad 0
        .quad   0x00cf92000000ffff      # data from 0, 4 GiB
table:  .word   15
        .long   segments

        .org    476
parameters:                             # little endian
pages:  .long   1
writes: .long   0                       # with each tick
beats:  .long   5
seed:   .long   1
        .org    510
        .word   0xaa55
